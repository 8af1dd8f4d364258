"""What a GPU's figures are worth: agreement, forgers, overhead. Needs one NVIDIA GPU.

    python benchmarks/gpu_timing.py kernels   # events, certified, predicted; one line a shape
    python benchmarks/gpu_timing.py regrades  # ten independent timings of each, largest spread
    python benchmarks/gpu_timing.py forgers   # what each forger got, beside the honest kernel
    python benchmarks/gpu_timing.py honest    # atomics, graphs, reused buffers, joined streams

All on tasks of the tests (``row-softmax``, ``square-gemm``), through the same worker as a grade.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from graders import machine
from graders.base import GradeRequest
from graders.candidate import Candidate, candidate_of
from graders.errors import GraderError
from graders.pacing.samples import PacedSamples
from graders.pacing.timer import Timer, time_paced
from tasks.loader import read_task
from tasks.spec import Shape, Task

TESTS = Path(__file__).parents[1] / "tests" / "graders"
SOFTMAX, GEMM = "row-softmax", "square-gemm"
FORGED_SHAPES = ("r8_n1024", "r64_n8192", "r4096_n8192")
REGRADED_SHAPES = ("r8_n1024", "r64_n8192", "r4096_n8192", "r32768_n8192", "n4096")


def main() -> None:
    """Run one part, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="?", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--gpu", default="cuda", help="UUID; the only one where there is one")
    parser.add_argument("--tier", default="quick", choices=["quick", "full"])
    parser.add_argument("--runs", type=int, default=10, help="independent timings, for regrades")
    parser.add_argument("--json", type=Path, help="also write every figure here")
    given = parser.parse_args()
    if not machine.gpus():
        print("no NVIDIA GPU on this machine: nothing to measure")
        return
    gpu = machine.resolved(given.gpu)
    figures = {}
    for part in PARTS if given.part == "all" else [given.part]:
        started = time.monotonic()
        print(f"\n== {part}", flush=True)
        if part == "regrades":
            figures[part] = regrades(gpu, given.tier, given.runs)
        else:
            figures[part] = PARTS[part](gpu, given.tier)
        print(f"   {time.monotonic() - started:.0f} s", flush=True)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))


def kernels(gpu: str, tier: str) -> list[dict[str, object]]:
    """Honest kernels from 5 us to 5 ms."""
    found = []
    for name, kind in ((SOFTMAX, "naive"), (SOFTMAX, "oracle"), (GEMM, "naive")):
        task = _task(name)
        for samples in _timed(task, task.folder / "submissions" / kind, task.shapes, gpu, tier):
            found.append(_line(f"{name} {kind}", samples))
    return found


def honest(gpu: str, tier: str) -> list[dict[str, object]]:
    """Honest kernels that a careless grader would punish."""
    found = []
    for solution in sorted((TESTS / "honest_gpu").glob("*.py")):
        with _handed_in(solution) as folder:
            task = _task(SOFTMAX)
            for samples in _timed(task, folder, _shapes(task, FORGED_SHAPES), gpu, tier):
                found.append(_line(solution.stem, samples))
    return found


def regrades(gpu: str, tier: str, count: int = 10) -> list[dict[str, object]]:
    """Spread of the scoring figure over independent timings, each with workers of its own."""
    found = []
    for name in (SOFTMAX, GEMM):
        task = _task(name)
        folder = task.folder / "submissions" / "naive"
        shapes = _shapes(task, REGRADED_SHAPES)
        runs = [_timed(task, folder, shapes, gpu, tier) for _ in range(count)]
        for n, shape in enumerate(shapes):
            medians = [run[n].summary().median_ms for run in runs]
            certified = [run[n].certified_ms for run in runs]
            line: dict[str, object] = {
                "what": f"{name} {shape.name}",
                "median_us": _us(statistics.median(medians)),
                "spread": _spread(medians),
                "certified_spread": _spread(certified),
                "accepted": sum(run[n].summary().method == "cuda_events" for run in runs),
            }
            print(line, flush=True)
            found.append(line)
    return found


def forgers(gpu: str, tier: str) -> list[dict[str, object]]:
    """What each forger's score is against that of the honest kernel that it calls."""
    task = _task(SOFTMAX)
    shapes = _shapes(task, FORGED_SHAPES)
    naive = task.folder / "submissions" / "naive"
    truth = {samples.shape: samples for samples in _timed(task, naive, shapes, gpu, "full")}
    found = []
    for solution in sorted((TESTS / "forgers").glob("*/solution.py")):
        with _handed_in(solution) as folder:
            for line in _forged(task, folder, shapes, gpu, tier, truth):
                found.append({"forger": solution.parent.name, **line})
                print(found[-1], flush=True)
    return found


def _forged(
    task: Task,
    folder: Path,
    shapes: Sequence[Shape],
    gpu: str,
    tier: str,
    truth: dict[str, PacedSamples],
) -> Iterator[dict[str, object]]:
    """Our own worker's figures are those of the honest kernel's run, to save time."""
    with _candidate(task, folder, gpu) as candidate, candidate.session() as session:
        timer = Timer(candidate, session, tier)
        for shape in shapes:
            try:
                samples = timer.time(shape)
            except GraderError as error:
                yield {"word": str(getattr(error, "result", "void")), "why": str(error)[:110]}
                return
            honest = truth[shape.name]
            samples.trusted = honest.trusted
            yield _gain(samples, honest.summary().median_ms)


def _gain(samples: PacedSamples, honest_ms: float) -> dict[str, object]:
    summary = samples.summary()
    return {
        "shape": samples.shape,
        "method": summary.method,
        "honest_us": _us(honest_ms),
        "score_us": _us(summary.median_ms),
        "certified_us": _us(samples.certified_ms),
        "predicted_us": _us(samples.predicted_ms),
        "gain_us": _us(honest_ms - summary.median_ms),
        "gain": round(1 - summary.median_ms / honest_ms, 3),
    }


def _timed(
    task: Task, folder: Path, shapes: Sequence[Shape], gpu: str, tier: str
) -> list[PacedSamples]:
    with _candidate(task, folder, gpu) as candidate:
        return time_paced(candidate, shapes, tier)


@contextmanager
def _candidate(task: Task, folder: Path, gpu: str) -> Iterator[Candidate]:
    with candidate_of(GradeRequest(task, folder, device=gpu)) as candidate:
        yield candidate


@contextmanager
def _handed_in(solution: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copyfile(solution, folder / "solution.py")
        shutil.copyfile(TESTS / "forgers" / "shared.py", folder / "shared.py")
        yield folder


def _line(what: str, samples: PacedSamples) -> dict[str, object]:
    claim = samples.claim
    assert claim is not None
    line: dict[str, object] = {
        "what": f"{what} {samples.shape}",
        "events_us": _us(claim.median_ms),
        "interval_us": [_us(claim.ci_low_ms), _us(claim.ci_high_ms)],
        "device_us": _us(claim.device_ms or 0.0),
        "certified_us": _us(samples.certified_ms),
        "predicted_us": _us(claim.predicted_ms),
        "accepted": claim.accepted,
        "verified": samples.verified,
        "deferred": round(samples.deferred, 2),
        "seconds": round(samples.seconds, 2),
        "beside_us": [_us(trusted.beside_ms) for trusted in samples.trusted],
        "chains_us": [_us(chain.mean_ns / 1e6) for chain in samples.chains],
    }
    print(line, flush=True)
    return line


def _task(name: str) -> Task:
    return read_task(TESTS / "library" / name)


def _shapes(task: Task, names: Sequence[str]) -> list[Shape]:
    return [shape for shape in task.shapes if shape.name in names]


def _us(milliseconds: float) -> float:
    return round(milliseconds * 1e3, 2)


def _spread(values: Sequence[float]) -> float:
    return round((max(values) - min(values)) / statistics.median(values), 4)


PARTS: dict[str, Callable[[str, str], list[dict[str, object]]]] = {
    "kernels": kernels,
    "honest": honest,
    "forgers": forgers,
    "regrades": regrades,
}

if __name__ == "__main__":
    main()
