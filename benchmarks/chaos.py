"""kill -9 of the whole orchestrator at 200 random moments; every invariant is asserted.

Two attempts of one cell run at once, each a session of many steps in bubblewrap. A third of the
kills wait until a thread is inside an fsync. Afterwards one more run finishes everything.

    python benchmarks/chaos.py [--moments 200] [--folder DIR]
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from command_line import run_in  # noqa: E402 - it lies with the tests
from killing import (  # noqa: E402
    EndedEarly,
    Killing,
    Seen,
    assert_no_finished_step_is_lost,
    assert_no_step_is_done_twice,
    assert_nothing_is_left,
    kill_once,
)
from transcripts.store import Archive  # noqa: E402

ATTEMPTS = 2
LONGEST_S = 2.0
STEPS_A_MOMENT = 7
"""More than a run can do before its kill."""


def main() -> None:
    """Kill, look, finish, assert, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    steps = options.moments * STEPS_A_MOMENT + 10
    model = f"longhaul?steps={steps}&tool_s=0.1&latency_ms=100&chunk_ms=5"
    killing = Killing(
        sweep=(
            *("sweep", "--models", f"{model},idle", "--tasks", "layernorm-backward"),
            *("--attempts", str(ATTEMPTS), "--tier", "quick", "--sandbox", "bubblewrap"),
        ),
        moments=options.moments,
        longest_s=LONGEST_S,
        seed=options.seed,
        aimed=0.33,
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        started = time.monotonic()
        sights = kills(Path(scratch), killing)
        killed_s = time.monotonic() - started
        done = run_in(Path(scratch), *killing.sweep, timeout_s=3600)
        assert done.code == 0, done.err
        report(Path(scratch), sights, steps, killed_s)


def kills(folder: Path, killing: Killing) -> list[Seen]:
    """All kills, one after the other."""
    draw, sights = random.Random(killing.seed), []
    for number in range(killing.moments):
        try:
            sights.append(kill_once(folder, killing, draw))
        except EndedEarly as ended:
            sys.exit(f"the sweep ended before kill {number}: {ended}")
        if number % 20 == 19:
            print(f"{number + 1} kills, {sum(s.hit for s in sights)} hits", file=sys.stderr)
    return sights


def report(folder: Path, sights: list[Seen], steps: int, killed_s: float) -> None:
    """Assert what must hold, and say what was seen."""
    hits = sum(seen.hit for seen in sights)
    assert hits >= len(sights) / 2
    assert_no_finished_step_is_lost(folder, sights)
    interrupted = assert_no_step_is_done_twice(folder, sights, steps)
    attempts = list(Archive.open(folder / "archive").attempts())
    assert all(attempt.is_sealed for attempt in attempts)
    assert set(Counter(a.record.cell.id for a in attempts).values()) == {ATTEMPTS}
    assert_nothing_is_left(folder)
    flights = sum((seen.in_flight for seen in sights), Counter[str]())
    fsyncs = sum(seen.in_fsync for seen in sights)
    where = ", ".join(f"{count} {what}" for what, count in sorted(flights.items()))
    print(
        f"kill -9 at {len(sights)} moments in {killed_s / 60:.1f} minutes: {hits} hit a tool call, "
        f"a stream or an fsync ({fsyncs} an fsync); sessions then: {where}.\n"
        f"Finished steps lost: 0 of {ATTEMPTS * steps}; done twice: 0; cells finished twice: 0; "
        f"interrupted calls told to the model: {interrupted}; processes left after gc: 0; "
        "the archive verifies."
    )


if __name__ == "__main__":
    main()
