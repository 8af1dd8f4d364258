"""Ctrl-C and SIGTERM, once and twice, to the whole process."""

import signal
from pathlib import Path

import pytest

from fault_table import end_of
from live_sweep import (
    arguments,
    only_attempt,
    run_sessions_to_their_end,
    started,
    steps_done,
    wait_for_calls,
    wait_for_results,
)
from transcripts.events import ToolResult


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_finishes_the_step_and_leaves_the_session_to_be_resumed(
    tmp_path: Path, number: signal.Signals
) -> None:
    words = arguments("longhaul?steps=200&tool_s=0.05", "process", "--max-steps", "200")
    with started(tmp_path, words) as sweep:
        wait_for_results(tmp_path, 2)
        sweep.send_signal(number)
        _, said = sweep.communicate(timeout=30)
    assert sweep.returncode == 130
    assert "finishing running steps" in said
    attempt = only_attempt(tmp_path)
    assert not attempt.is_sealed
    assert attempt.record.outcome is not None
    outcome = attempt.record.outcome
    assert (outcome.end, outcome.reason) == end_of("Ctrl-C or SIGTERM")
    assert not [e for e in attempt.events() if isinstance(e, ToolResult) and e.status != "ok"]


def test_a_second_signal_stops_at_once_and_loses_no_finished_step(tmp_path: Path) -> None:
    words = arguments("longhaul?steps=3&tool_s=1.5", "process", "--max-steps", "3")
    with started(tmp_path, words) as sweep:
        wait_for_calls(tmp_path, 2)  # the second command runs
        sweep.send_signal(signal.SIGINT)
        while "finishing" not in sweep.stderr.readline():
            pass
        sweep.send_signal(signal.SIGINT)
        assert sweep.wait(timeout=30) == 130
    before = list(only_attempt(tmp_path).lines())
    attempt = run_sessions_to_their_end(tmp_path, words)
    assert list(attempt.lines())[: len(before)] == before
    results = [event for event in attempt.events() if isinstance(event, ToolResult)]
    assert [result.status for result in results] == ["ok", "interrupted", "ok"]
    assert sorted(set(steps_done(attempt))) == sorted(steps_done(attempt))
