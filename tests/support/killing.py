"""kill -9 of a whole orchestrator again and again, and what must hold afterwards."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from command_line import environment, run_in
from processes import processes_that_see
from transcripts.events import Reply, Request, SessionStart, ToolCallStarted, ToolResult
from transcripts.store import Archive, AttemptFolder

_FSYNC = {"74", "75"}
"""fsync and fdatasync on x86-64."""


@dataclass(frozen=True)
class Killing:
    """What is run, how often it is killed, and how long after its sessions began at the latest."""

    sweep: tuple[str, ...]
    moments: int
    longest_s: float
    seed: int = 20
    aimed: float = 0.0  # share of the moments that wait for a thread inside an fsync


@dataclass
class Seen:
    """What one kill found."""

    in_flight: Counter[str] = field(default_factory=Counter)
    in_fsync: bool = False
    finished: dict[str, list[bytes]] = field(default_factory=dict)

    @property
    def hit(self) -> bool:
        """True when it fell inside a tool call, a model's stream or an fsync."""
        return self.in_fsync or bool(self.in_flight["tool call"] + self.in_flight["model stream"])


class EndedEarly(Exception):
    """The sweep was done, or failed, before its kill."""


def kill_once(folder: Path, killing: Killing, draw: random.Random) -> Seen:
    """Start the sweep, kill it at a random moment, and look at what is left.

    Raises EndedEarly.
    """
    process = _start(folder, killing.sweep)
    try:
        process.wait(timeout=draw.uniform(0, killing.longest_s))
        raise EndedEarly(process.stderr.read() if process.stderr else "")
    except subprocess.TimeoutExpired:
        in_fsync = _wait_for_fsync(process.pid) if draw.random() < killing.aimed else False
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finally:
        if process.stderr:
            process.stderr.close()
    left = wait_until_gone(folder / "archive")
    assert not left, f"processes outlived the orchestrator: {left}"
    seen = look(folder / "archive")
    seen.in_fsync = in_fsync
    return seen


def _start(folder: Path, sweep: tuple[str, ...]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *sweep],
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


def _wait_for_fsync(pid: int, patience_s: float = 1.0) -> bool:
    """Return at once when a thread of the process is seen inside an fsync."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        for task in Path(f"/proc/{pid}/task").glob("*/syscall"):
            try:
                if task.read_text().split()[0] in _FSYNC:
                    return True
            except (OSError, IndexError):
                continue
    return False


def wait_until_gone(folder: Path) -> list[int]:
    """Processes that still see the folder; empty when all are gone within ten seconds."""
    deadline = time.monotonic() + 10
    left = processes_that_see(folder)
    while left and time.monotonic() < deadline:
        left = processes_that_see(folder)
    return left


def look(archive: Path) -> Seen:
    """What the attempts of an archive hold now."""
    seen = Seen()
    for folder in Archive.open(archive, read_only=True).attempts():
        if not folder.is_sealed and folder.record.entrant.name.startswith("longhaul"):
            seen.in_flight[in_flight(folder)] += 1
        seen.finished[folder.id] = list(folder.lines())
    return seen


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


def assert_no_finished_step_is_lost(folder: Path, sights: list[Seen]) -> None:
    """Every whole line that a kill left is where it was."""
    final = {f.id: list(f.lines()) for f in Archive.open(folder / "archive").attempts()}
    for seen in sights:
        for attempt, lines in seen.finished.items():
            whole = [line for line in lines if line.endswith(b"\n")] or lines
            assert final[attempt][: len(whole)] == whole


def assert_no_step_is_done_twice(folder: Path, sights: list[Seen], steps: int) -> int:
    """Each step has one result and one effect, but for interrupted ones, which may have none.

    Returns how many were told as interrupted.
    """
    interrupted = 0
    for attempt in Archive.open(folder / "archive").attempts():
        if not attempt.record.entrant.name.startswith("longhaul"):
            continue
        results = [event for event in attempt.events() if isinstance(event, ToolResult)]
        by_step = Counter(result.step for result in results)
        assert [by_step[step] for step in range(steps)] == [1] * steps
        told = {result.step for result in results if result.status == "interrupted"}
        interrupted += len(told)
        done = Counter((attempt.submission_dir / "progress.log").read_text().split())
        for step in range(steps):
            assert done[str(step)] == 1 or (step in told and not done[str(step)])
    assert interrupted == sum(seen.in_flight["tool call"] for seen in sights)
    return interrupted


def assert_nothing_is_left(folder: Path) -> None:
    """After `gc` no process, and an archive that verifies."""
    assert run_in(folder, "gc").code == 0
    assert wait_until_gone(folder / "archive") == []
    verified = run_in(folder, "archive", "verify")
    assert verified.code == 0, verified.out
