"""Faults of the machine: its clock, its disk, its memory."""

import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from answers import SUBMIT, answer
from fault_table import end_of
from live_sweep import (
    arguments,
    as_root,
    only_attempt,
    run_sessions_to_their_end,
    started,
    steps_done,
    wait_for_results,
)
from sandboxes.base import Limits, Sandbox, SandboxProvider, SandboxSpec
from sandboxes.registry import provider
from transcripts.checks import attempt_problems
from transcripts.events import ToolResult
from transcripts.store import Archive

SUPPORT = Path(__file__).parents[1] / "support"
DAY_S = 86_400


@pytest.fixture(scope="module")
def clock_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    source = SUPPORT / "jumping_clock.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_a_clock_that_jumps_loses_no_claim_and_spoils_no_duration(
    tmp_path: Path, clock_library: Path, jump_s: int
) -> None:
    """Two orchestrators share four attempts; the clock of one of them jumps in the middle."""
    offset = tmp_path / "offset"
    offset.write_text("0")
    preloaded = {"LD_PRELOAD": str(clock_library), "CLOCK_OFFSET_FILE": str(offset)}
    more = ("--max-steps", "12", "--attempts", "4", "--concurrency", "2")
    words = arguments("longhaul?steps=12&tool_s=0.1", "process", *more)
    with started(tmp_path, words, **preloaded) as jumps:
        wait_for_results(tmp_path, 2)
        with started(tmp_path, words) as other:
            offset.write_text(str(jump_s))
            ends = [process.communicate(timeout=120)[1] for process in (jumps, other)]
    assert [jumps.returncode, other.returncode] == [0, 0], ends
    attempts = list(Archive.open(tmp_path / "archive").attempts())
    assert [attempt.is_sealed for attempt in attempts] == [True] * 4
    jumped = 0
    for attempt in attempts:
        assert steps_done(attempt) == list(range(12))
        assert attempt_problems(attempt) == []
        events = list(attempt.events())
        jumped += abs(events[-1].at - events[0].at) > timedelta(hours=12)
        offsets = [event.offset_s for event in events]
        assert offsets == sorted(offsets)
        assert offsets[-1] < DAY_S / 2
        durations = [event.duration_s for event in events if isinstance(event, ToolResult)]
        assert all(0.1 <= duration < DAY_S / 2 for duration in durations)
    assert jumped, "no session saw the clock jump"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB, for one archive."""
    if not as_root():
        pytest.skip("mounting needs root")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk_stops_a_session_that_goes_on_when_there_is_space(small_disk: Path) -> None:
    model = "longhaul?steps=60&output_bytes=60000"
    words = arguments(model, "process", "--max-steps", "60")
    with started(small_disk, words) as sweep:
        _, said = sweep.communicate(timeout=60)
    assert sweep.returncode == 5
    assert "no space left" in said
    end, reason = end_of("disk full, then freed")
    assert f"{end} ({reason}) after" in said
    attempt = only_attempt(small_disk)
    assert not attempt.is_sealed
    before = [line for line in attempt.lines() if line.endswith(b"\n")]
    assert len(before) > 10
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    attempt = run_sessions_to_their_end(small_disk, words)
    assert list(attempt.lines())[: len(before)] == before
    done = Counter(steps_done(attempt))
    assert set(done) == set(range(60))


@dataclass(frozen=True)
class Tight:
    """A provider whose sandboxes have little memory."""

    real: SandboxProvider
    kind: str = "bubblewrap"

    def unavailable_reason(self) -> str | None:
        return self.real.unavailable_reason()

    def shortcomings(self) -> Sequence[str]:
        return self.real.shortcomings()

    def start(self, spec: SandboxSpec) -> Sandbox:
        return self.real.start(replace(spec, limits=Limits(memory_bytes=256 << 20)))

    def reap(self, is_live: object) -> list[str]:
        raise AssertionError("nothing is reaped here")


def test_a_command_that_runs_out_of_memory_is_only_a_failed_command(
    playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = provider("bubblewrap")
    monkeypatch.setattr("orchestrator.launch.provider", lambda kind: Tight(real))
    eats = 'python3 -c \\"x = bytearray(2 << 30); print(len(x))\\"'
    command = ("bash", f'{{"command": "{eats}"}}')
    folder = playing(answer(command), SUBMIT, sandbox="bubblewrap")
    first, *_ = [event for event in folder.events() if isinstance(event, ToolResult)]
    assert first.exit_code not in (0, None)
    assert str(2 << 30) not in first.text
    assert folder.is_sealed
