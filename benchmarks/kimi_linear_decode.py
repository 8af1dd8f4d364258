"""A step of `kimi-linear-decode` on this GPU: oracle and baseline, errors and milliseconds.

    python benchmarks/kimi_linear_decode.py [--submission FOLDER] [--seeds 3]

Of each size the rms of the error over that of the reference, of hidden and of the worst leaf; of a
timed size the median of single steps by CUDA events with a cold L2 (``step``), the same queued
behind a sleeping kernel, so without the launch (``device``), what a step costs the host, and
launches a step.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from tasks import loader

NAME = "kimi-linear-decode"
WARM, TIMED, COLD_BYTES, SPIN_CYCLES = 10, 40, 256 << 20, 2_000_000


def loaded(path: Path, name: str) -> ModuleType:
    """A module by its file, which may import what lies beside it."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    sys.path.remove(str(path.parent))
    return module


def off(one: Any, other: Any) -> float:
    """rms of the difference over that of the second."""
    one, other = one.double(), other.double()
    return float(((one - other).square().mean() / other.square().mean()).sqrt())


def worst(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The leaf that is furthest off, and hidden."""
    errors = {leaf: off(found[leaf], value) for leaf, value in wanted.items()}
    leaf = max(errors, key=lambda name: errors[name])
    return f"hidden {errors['hidden']:.5f}, worst {leaf} {errors[leaf]:.5f}"


def timed(step: Callable[[int], None], spin: int) -> tuple[float, float]:
    """Median milliseconds on the device, and microseconds of the host."""
    cold = torch.empty(COLD_BYTES, dtype=torch.uint8, device="cuda")
    device, host = [], []
    for number in range(WARM + TIMED):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cold.zero_()
        torch.cuda.synchronize()
        if spin:
            torch.cuda._sleep(spin)
        start.record()
        began = time.perf_counter()
        step(number)
        host.append(time.perf_counter() - began)
        end.record()
        torch.cuda.synchronize()
        device.append(start.elapsed_time(end))
    return statistics.median(device[WARM:]), 1e6 * statistics.median(host[WARM:])


def launches(step: Callable[[int], None]) -> int:
    """Kernels, copies and memsets of one step."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step(0)
        torch.cuda.synchronize()
    return sum(event.count for event in seen.key_averages() if event.device_time_total > 0)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    task = loader.load_task(NAME)
    parser.add_argument("--submission", type=Path, default=task.folder / "submissions" / "oracle")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    public: Any = loader.load_reference(task)
    adapter = loader.execute(task, "public/adapter.py", ("setup", "run"))
    entries = {
        given.submission.name: loaded(given.submission / "solution.py", "solution"),
        "baseline": loaded(task.folder / "public" / "baseline.py", "baseline"),
    }
    for shape in (*task.smoke, *task.shapes):
        sized = {**shape.dims, "dtype": shape.dtype}
        made = public.make_inputs(sized, 1, "cuda")
        calls = [public.make_calls(sized, seed, "cuda")["calls"][0] for seed in range(given.seeds)]
        wanted = [public.reference(made["params"], [call])[0] for call in calls]
        for name, entry in entries.items():
            held = adapter.setup(entry, made["params"])
            found = [dict(adapter.run(entry, held, calls[0]))]
            print(f"{shape.name:>10} {name:>9}: {worst(found[0], wanted[0])}", flush=True)
            for call, right in zip(calls[1:], wanted[1:], strict=True):
                told = worst(adapter.run(entry, held, call), right)
                print(f"{'':>10} {'':>9}  {told}", flush=True)
            if shape not in task.shapes:
                continue

            def step(number: int, entry: Any = entry, held: Any = held, c: Any = calls) -> None:
                adapter.run(entry, held, c[number % len(c)])

            (whole, host), (device, _) = timed(step, 0), timed(step, SPIN_CYCLES)
            print(
                f"{'':>10} {'':>9}  step {whole:.4f} ms, device {device:.4f} ms, "
                f"host {host:.0f} us, {launches(step)} launches",
                flush=True,
            )


if __name__ == "__main__":
    main()
