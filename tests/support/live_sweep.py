"""A sweep of one long session as a user's process, watched through its archive."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from command_line import environment, run_in
from transcripts.events import Event, ToolCallStarted, ToolResult
from transcripts.store import Archive, AttemptFolder

TASK = "layernorm-backward"


def arguments(model: str, sandbox: str, *more: str) -> list[str]:
    """The command line, without the regrade's long tier."""
    return [
        *("sweep", "--models", model, "--tasks", TASK, "--sandbox", sandbox, "--tier", "quick"),
        *more,
    ]


@contextmanager
def started(folder: Path, words: list[str], **extra: str) -> Iterator["subprocess.Popen[str]"]:
    """The sweep in a process of its own; killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *words],
        cwd=folder,
        env=environment(folder, **extra),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def only_attempt(folder: Path) -> AttemptFolder:
    """The one attempt of the archive there."""
    (found,) = Archive.open(folder / "archive", read_only=True).attempts()
    return found


def wait_for_results(folder: Path, count: int, patience_s: float = 60.0) -> None:
    """Return once the session has ``count`` results of tools."""
    _wait_for(folder, ToolResult, count, patience_s)


def wait_for_calls(folder: Path, count: int, patience_s: float = 60.0) -> None:
    """Return once the session has begun ``count`` calls of tools."""
    _wait_for(folder, ToolCallStarted, count, patience_s)


def _wait_for(folder: Path, kind: type[Event], count: int, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if (folder / "archive" / "archive.json").exists():
            for found in Archive.open(folder / "archive", read_only=True).attempts():
                if sum(isinstance(event, kind) for event in found.events()) >= count:
                    return
        time.sleep(0.02)
    raise AssertionError(f"no {count} events of {kind.__name__} within {patience_s:g} s")


def steps_done(folder: AttemptFolder) -> list[int]:
    """What a sealed `longhaul` noted of its steps."""
    return [int(word) for word in (folder.submission_dir / "progress.log").read_text().split()]


def run_sessions_to_their_end(folder: Path, words: list[str]) -> AttemptFolder:
    """The same command again; the sealed attempt."""
    done = run_in(folder, *words)
    assert done.code in (0, 3), done.err
    attempt = only_attempt(folder)
    assert attempt.is_sealed, done.err
    return attempt


def as_root() -> bool:
    """Mounts and engines need it."""
    return os.geteuid() == 0
