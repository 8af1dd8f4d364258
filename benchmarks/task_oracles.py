"""Grades of the shipped submissions of the GPU tasks, side by side. Needs one NVIDIA GPU.

    python benchmarks/task_oracles.py                        # oracle, naive and wrong of each
    python benchmarks/task_oracles.py nsa topk --kinds oracle --tier full --out grades.jsonl

Several grades check at once, and each measures alone, as where several people grade on one GPU.
Fractions are of the datasheet's and of the measured peak; seconds are of the whole grade, of its
phases, and of the time that it had the GPU alone.
"""

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path

from graders import machine, performance
from graders.base import GradeRequest
from graders.candidate import candidate_of
from graders.errors import GraderVoid, SubmissionFailed
from graders.pipeline import RefereeGrader
from graders.recording import Gathered, Measurement, record
from graders.roofline import standing
from graders.timing import turn_name
from sandboxes.lease import lease
from tasks.deck import load_deck
from tasks.loader import load_task
from transcripts.records import Grade

DECKS = ("hard", "cuda", "mega")
KINDS = ("oracle", "naive", "wrong")


def main() -> None:
    """Grade and print; every whole grade goes to ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tasks", nargs="*", help="names; all of the GPU decks without")
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--tier", default="quick", choices=["quick", "full"])
    parser.add_argument("--gpu", default="cuda", help="UUID; the only one where there is one")
    parser.add_argument("--side-by-side", type=int, default=5)
    parser.add_argument("--timing-only", action="store_true", help="no checks before it")
    parser.add_argument("--out", type=Path, help="JSON lines, one grade each")
    given = parser.parse_args()
    if not machine.gpus():
        print("no NVIDIA GPU on this machine: nothing to measure")
        return
    names = given.tasks or [cell.task for deck in DECKS for cell in load_deck(deck).cells]
    gpu, started = machine.resolved(given.gpu), time.monotonic()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.side_by_side, mp_context=context) as pool:
        jobs = {
            pool.submit(graded, name, kind, given.tier, gpu, given.timing_only): (name, kind)
            for kind in given.kinds
            for name in names
        }
        for job in as_completed(jobs):
            name, kind = jobs[job]
            if error := job.exception():
                print(name, kind, repr(error))
                continue
            print(
                f"[{time.monotonic() - started:4.0f} s]",
                *lines(name, kind, job.result()),
                sep="\n  ",
            )
            if given.out:
                with given.out.open("a") as file:
                    file.write(job.result().model_dump_json() + "\n")


def graded(name: str, kind: str, tier: str, gpu: str, timing_only: bool) -> Grade:
    """The isolated grade of a shipped submission, or what its timing alone would put into one."""
    task = load_task(name)
    folder = task.folder / "submissions" / kind
    request = GradeRequest(task, folder, mode="isolated", tier=tier, device=gpu)  # type: ignore[arg-type]
    return timed(request) if timing_only else RefereeGrader().grade(request)


def timed(request: GradeRequest) -> Grade:
    """Build beside others, then measure alone."""
    found, started, clock = Gathered(), datetime.now(UTC), time.monotonic()
    try:
        with candidate_of(request) as candidate:
            with lease(turn_name(request.device), shared=True), found.phase("build"):
                candidate.build()
            with found.phase("performance"):
                performance.measure(candidate, request, None, found)
    except SubmissionFailed as failure:
        found.fail(failure.result, str(failure))
    except GraderVoid as error:
        found.void(str(error))
    return record(request, found, Measurement("", started, time.monotonic() - clock, 0.0))


def lines(name: str, kind: str, grade: Grade) -> Iterator[str]:
    """What a person wants to know of it."""
    held = grade.lease.held_s if grade.lease else 0.0
    waited = grade.lease.waited_s if grade.lease else 0.0
    phases = " ".join(f"{phase} {seconds:.1f}" for phase, seconds in grade.phases.items())
    yield (
        f"{name} {kind}: {grade.result} {grade.message or grade.reason}".rstrip()
        + f" ({grade.seconds:.0f} s: {phases}; alone {held:.1f}, waited {waited:.1f})"
    )
    task = load_task(name)
    for shape, timing in zip(task.shapes, grade.timings, strict=False):
        at = standing(task, shape, timing.median_ms, grade.device)
        events, device = (
            (timing.claim.median_ms, timing.claim.device_ms) if timing.claim else (0, 0)
        )
        yield (
            f"  {timing.shape}: {timing.median_ms:.4f} ms {timing.method}"
            f" certified {timing.certified_ms or 0:.4f}"
            f" events {events:.4f} device {device or 0:.4f}"
            f" {at.achieved:.0f} {at.unit}, {_share(at.score_fraction)} of the datasheet,"
            f" {_share(at.measured_fraction)} of measured; baseline {timing.baseline_ms or 0:.4f}"
        )
    for check in grade.checks:
        if check.passed is False:
            yield f"  FAIL {check.check}: {check.detail}"
    for row in grade.correctness:
        if not row.passed:
            yield f"  WRONG {row.group} {row.shape}: {row.detail[:200]}"


def _share(fraction: float | None) -> str:
    return "?" if fraction is None else f"{fraction:.4f}"


if __name__ == "__main__":
    main()
