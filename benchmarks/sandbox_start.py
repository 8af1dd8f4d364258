"""What a sandbox costs: start, commands, close, for each kind that works here.

    python benchmarks/sandbox_start.py [--starts 20] [--commands 200]

Milliseconds, median and 90th percentile. A command is ``true``, one that writes is ``touch`` of a
new file, both without a shell; the last column is the CPU time of this process for ``true``. Goals:
start under 50 ms (bubblewrap) and 500 ms (docker). What this machine cannot enforce stands below
the table, as it makes starts cheaper.
"""

import argparse
import functools
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from sandboxes.base import SandboxProvider, SandboxSpec
from sandboxes.registry import KINDS, provider
from sandboxes.toolchain import host_toolchain


def milliseconds(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1e3


def row(samples: list[float]) -> str:
    """Median and 90th percentile."""
    return f"{statistics.median(samples):9.2f} {statistics.quantiles(samples, n=10)[-1]:9.2f}"


def measure(kind: SandboxProvider, starts: int, commands: int) -> str:
    """One line of the table."""
    toolchain = host_toolchain()
    started, closed, ran, wrote = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(starts):
            spec = SandboxSpec(
                uuid.uuid4().hex,
                "benchmark",
                Path(folder) / uuid.uuid4().hex,
                toolchain.mounts,
                toolchain.env,
            )
            before = time.perf_counter()
            sandbox = kind.start(spec)
            started.append((time.perf_counter() - before) * 1e3)
            cpu = time.process_time()
            run_true = functools.partial(sandbox.exec, ["true"], timeout_s=60)
            ran += [milliseconds(run_true) for _ in range(commands)]
            cpu = (time.process_time() - cpu) / commands * 1e3
            for number in range(commands):
                touch = functools.partial(sandbox.exec, ["touch", str(number)], timeout_s=60)
                wrote.append(milliseconds(touch))
            closed.append(milliseconds(sandbox.close))
    return f"{kind.kind:10} {row(started)} {row(ran)} {row(wrote)} {row(closed)} {cpu:9.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--commands", type=int, default=200)
    options = parser.parse_args()
    columns = [f"{what:>9} {'p90':>9}" for what in ("start", "command", "writes", "close")]
    print(f"{'ms':10} {' '.join(columns)} {'own CPU':>9}")
    lacks: list[str] = []
    for name in KINDS:
        kind = provider(name)
        reason = kind.unavailable_reason()
        print(f"{name:10} {reason}" if reason else measure(kind, options.starts, options.commands))
        lacks += [f"{name}: {line}" for line in (kind.shortcomings() if reason is None else ())]
    print("\n".join(lacks))


if __name__ == "__main__":
    main()
