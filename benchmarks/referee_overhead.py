"""What the referee costs: the trip of one call, its spread, and where the seconds of a grade go.

    python benchmarks/referee_overhead.py [--task layernorm-backward] [--repeats 5]

Prints three tables: the price of a call to a worker of our own by size of its buffers (this is
``overhead_ms`` of a grade, never subtracted); seconds of a grade, its exclusive turn, and the share
of the turn in which the submission ran; and how far repeated grades of one oracle are apart.
"""

import argparse
import statistics
from pathlib import Path

import numpy as np

from graders import launch, machine, trusted_noop
from graders.base import GradeRequest
from graders.pipeline import RefereeGrader
from graders.referee import WorkerSession
from tasks.loader import load_task, submission_dir
from transcripts.records import Grade

CALLS = 50
SIZES = (4 << 10, 256 << 10, 1 << 20, 8 << 20, 32 << 20)


def trips() -> None:
    """Milliseconds of a call, inputs and outputs of equal size, on fresh and on kept memory."""
    print(f"{'bytes each way':>15} {'kept ms':>9} {'fresh ms':>9}   median of {CALLS} calls")
    adapter = Path(str(trusted_noop.__file__))
    with launch.world(adapter, None, "bubblewrap") as place, machine.apart_from_worker():
        for size in SIZES:
            with WorkerSession(place, 8 << 30, core=machine.worker_core()) as session:
                session.build(None, ("y",), "cpu", 30)
                session.setup({"y": ((size,), "uint8")}, 30)
                inputs = {"x": np.ones(size, np.uint8)}
                room = size + 4096
                kept = [session.timed_call(inputs, room, 30).elapsed_ns for _ in range(CALLS)]
                fresh = [session.call(inputs, room, 30).elapsed_ns for _ in range(CALLS)]
            medians = (statistics.median(sample) / 1e6 for sample in (kept, fresh))
            print(f"{size:15,d} {next(medians):9.3f} {next(medians):9.3f}")


def grades(name: str, repeats: int) -> list[Grade]:
    """Seconds of full isolated grades of the oracle."""
    task = load_task(name)
    request = GradeRequest(task, submission_dir(task, "oracle"), mode="isolated")
    done = [RefereeGrader().grade(request) for _ in range(repeats)]
    print(f"\n{name}, oracle, full tier: {'grade s':>9} {'turn s':>8} {'in calls':>9}  result")
    for grade in done:
        held = grade.lease.held_s if grade.lease else 0.0
        calls = sum(t.calls * t.median_ms for t in grade.timings) / 1e3
        share = calls / held if held else 0.0
        print(f"{'':28} {grade.seconds:9.1f} {held:8.1f} {share:9.0%}  {grade.result}")
    return done


def agreement(done: list[Grade]) -> None:
    """Largest difference of the medians of one shape, relative to their median."""
    print(f"\n{'shape':36} {'median ms':>10} {'trip ms':>8} {'spread':>7}")
    for timing in done[0].timings:
        same = [t for grade in done for t in grade.timings if t.shape == timing.shape]
        medians = [t.median_ms for t in same]
        middle = statistics.median(medians)
        trip = statistics.median(t.overhead_ms for t in same)
        spread = (max(medians) - min(medians)) / middle
        print(f"{timing.shape:36} {middle:10.4f} {trip:8.4f} {spread:7.1%}")


def main() -> None:
    """Run all three."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="layernorm-backward")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    trips()
    agreement(grades(arguments.task, arguments.repeats))


if __name__ == "__main__":
    main()
