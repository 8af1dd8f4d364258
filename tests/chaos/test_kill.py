"""kill -9 of the whole orchestrator at moments uniform in time, then the same command again.

What must hold: no finished step is lost, no cell is finished twice, an interrupted step is told to
the model as such, the board is complete, and no process is left.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from command_line import environment, run_in, sweep_until_measured
from processes import processes_that_see
from transcripts.events import Reply, Request, SessionStart, ToolCallStarted, ToolResult
from transcripts.store import Archive, AttemptFolder

pytestmark = pytest.mark.alone

STEPS = 160  # at 0.3 s each and more: twenty runs of at most LONGEST_S never come to the end
MODELS = f"longhaul?steps={STEPS}&tool_s=0.15&latency_ms=150&chunk_ms=10,idle"
SWEEP = (
    *("sweep", "--models", MODELS, "--tasks", "kv-cache,layernorm-backward"),
    *("--tier", "quick", "--sandbox", "bubblewrap"),
)
MOMENTS = 20
LONGEST_S = 2.5
"""A kill comes up to this long after the first session of a run has said that it works."""


@dataclass
class Seen:
    """What one kill found."""

    in_flight: Counter[str] = field(default_factory=Counter)
    finished: dict[str, list[bytes]] = field(default_factory=dict)


def in_flight(folder: AttemptFolder) -> str:
    """What a live session was doing, by its last intent without a result."""
    last = ""
    for event in folder.events():
        if isinstance(event, Request):
            last = "model stream"
        elif isinstance(event, ToolCallStarted):
            last = "tool call"
        elif isinstance(event, Reply | ToolResult | SessionStart):
            last = "between steps"
    return last or "between steps"


def look(archive: Path) -> Seen:
    seen = Seen()
    for folder in Archive.open(archive, read_only=True).attempts():
        if not folder.is_sealed and folder.record.entrant.name.startswith("longhaul"):
            seen.in_flight[in_flight(folder)] += 1
        seen.finished[folder.id] = list(folder.lines())
    return seen


def start(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *SWEEP],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "longhaul" in line and ("starts" in line or "resumes" in line):
            break
    return process


def wait_until_gone(folder: Path) -> list[int]:
    deadline = time.monotonic() + 10
    left = processes_that_see(folder)
    while left and time.monotonic() < deadline:
        left = processes_that_see(folder)
    return left


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Seen]]]:
    """An archive that went through all kills and was then finished by a last run."""
    folder = tmp_path_factory.mktemp("chaos")
    draw = random.Random(20)
    sights = []
    for _ in range(MOMENTS):
        process = start(folder)
        moment = draw.uniform(0, LONGEST_S)
        try:
            process.wait(timeout=moment)
            pytest.fail(f"the sweep ended before its kill: {process.stderr.read()}")
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert not wait_until_gone(folder / "archive"), "processes outlived the orchestrator"
        sights.append(look(folder / "archive"))
    done = sweep_until_measured(folder, *SWEEP)
    assert done.code == 0, done.err
    yield folder, sights


def test_half_of_the_moments_hit_a_step_in_flight(killed: tuple[Path, list[Seen]]) -> None:
    _, sights = killed
    hit = [seen for seen in sights if seen.in_flight["tool call"] + seen.in_flight["model stream"]]
    total = sum((seen.in_flight for seen in sights), Counter[str]())
    print(f"moments {len(sights)}, with a step in flight {len(hit)}; sessions: {dict(total)}")
    assert len(sights) == MOMENTS
    assert len(hit) >= MOMENTS / 2


def test_no_finished_step_is_lost(killed: tuple[Path, list[Seen]]) -> None:
    folder, sights = killed
    final = {f.id: list(f.lines()) for f in Archive.open(folder / "archive").attempts()}
    for seen in sights:
        for attempt, lines in seen.finished.items():
            whole = [line for line in lines if line.endswith(b"\n")] or lines
            assert final[attempt][: len(whole)] == whole


def test_no_cell_is_finished_twice_and_the_board_is_complete(
    killed: tuple[Path, list[Seen]],
) -> None:
    folder, _ = killed
    attempts = list(Archive.open(folder / "archive").attempts())
    assert all(attempt.is_sealed for attempt in attempts)
    per_cell = Counter(attempt.record.cell.id for attempt in attempts)
    assert sorted(per_cell.values()) == [1] * 4
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
    interrupted = 0
    for attempt in Archive.open(folder / "archive").attempts():
        if not attempt.record.entrant.name.startswith("longhaul"):
            continue
        results = [event for event in attempt.events() if isinstance(event, ToolResult)]
        interrupted += sum(result.status == "interrupted" for result in results)
        done = Counter((attempt.submission_dir / "progress.log").read_text().split())
        for step in range(STEPS):
            (result,) = [r for r in results if r.step == step]
            assert done[str(step)] == 1 or (result.status == "interrupted" and not done[str(step)])
    assert interrupted == sum(seen.in_flight["tool call"] for seen in sights)


def test_the_archive_verifies(killed: tuple[Path, list[Seen]]) -> None:
    folder, _ = killed
    done = run_in(folder, "archive", "verify")
    assert done.code == 0, done.out
