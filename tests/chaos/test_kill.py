"""kill -9 of the whole orchestrator at moments uniform in time, then the same command again.

What must hold: no finished step is lost, no cell is finished twice, an interrupted step is told to
the model as such, the board is complete, and no process is left. `benchmarks/chaos.py` does the
same at 200 moments.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import killing
from command_line import run_in, sweep_until_measured
from killing import Killing, Seen
from transcripts.store import Archive

pytestmark = pytest.mark.alone

STEPS = 60  # at 0.3 s each and more: the runs of at most a second or two never come to the end
KILLING = Killing(
    sweep=(
        *(
            "sweep",
            "--models",
            f"longhaul?steps={STEPS}&tool_s=0.15&latency_ms=150&chunk_ms=10,idle",
        ),
        *("--tasks", "kv-cache", "--attempts", "2", "--tier", "quick", "--sandbox", "bubblewrap"),
    ),
    moments=10,
    longest_s=1.5,
    aimed=0.33,
)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Seen]]]:
    """An archive that went through all kills and was then finished by a last run."""
    folder = tmp_path_factory.mktemp("chaos")
    draw = random.Random(KILLING.seed)
    sights = [killing.kill_once(folder, KILLING, draw) for _ in range(KILLING.moments)]
    done = sweep_until_measured(folder, *KILLING.sweep)
    assert done.code == 0, done.err
    yield folder, sights


def test_half_of_the_moments_hit_a_step_in_flight(killed: tuple[Path, list[Seen]]) -> None:
    _, sights = killed
    total = sum((seen.in_flight for seen in sights), Counter[str]())
    print(f"moments {len(sights)}, hits {sum(s.hit for s in sights)}; sessions: {dict(total)}")
    assert sum(seen.hit for seen in sights) >= KILLING.moments / 2


def test_no_finished_step_is_lost(killed: tuple[Path, list[Seen]]) -> None:
    killing.assert_no_finished_step_is_lost(*killed)


def test_no_cell_is_finished_twice_and_the_board_is_complete(
    killed: tuple[Path, list[Seen]],
) -> None:
    folder, _ = killed
    attempts = list(Archive.open(folder / "archive").attempts())
    assert all(attempt.is_sealed for attempt in attempts)
    per_cell = Counter(attempt.record.cell.id for attempt in attempts)
    assert sorted(per_cell.values()) == [2] * 2
    status = json.loads(run_in(folder, "status", "--json").out)
    ends = Counter((row["session"], row["grade"], row["audit"]) for row in status)
    assert ends == {("submitted", "pass", "clean"): 2, ("no_submission", "none", "none"): 2}
    board = run_in(folder, "board")
    assert board.code == 0
    assert sum("longhaul" in line for line in board.out.splitlines()) >= 1


def test_no_step_is_done_twice_and_interrupted_ones_are_told(
    killed: tuple[Path, list[Seen]],
) -> None:
    folder, sights = killed
    killing.assert_no_step_is_done_twice(folder, sights, STEPS)


def test_nothing_is_left_and_the_archive_verifies(killed: tuple[Path, list[Seen]]) -> None:
    folder, _ = killed
    killing.assert_nothing_is_left(folder)
