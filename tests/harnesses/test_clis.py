"""The vendors' CLIs for real, pinned and installed, against the scripted server."""

import pytest

from orchestrator.agents.install import is_installed
from orchestrator.agents.registry import HARNESSES, harness
from orchestrator.agents.trial import play, try_harness

pytestmark = pytest.mark.alone  # each starts a runtime of its own and has a time limit

TASK = "kv-cache"


@pytest.fixture
def cli(request):
    found = harness(request.param)
    if not is_installed(found):
        pytest.skip(f"`orchestrator harness install {found.name}` has not been run here")
    return found


@pytest.mark.parametrize("cli", HARNESSES, indirect=True)
def test_a_session_writes_checks_and_ends_and_its_log_agrees_with_the_wire(cli):
    trial = try_harness(cli, TASK)
    assert trial.native.finished, (trial.native, trial.stderr)
    assert "solution.py" in trial.files
    assert trial.native.tool_calls == sum(call.tool_calls for call in trial.wire) >= 7
    assert trial.disagreements == ()


@pytest.mark.parametrize("cli", HARNESSES, indirect=True)
def test_idle_ends_without_a_file(cli):
    trial = try_harness(cli, TASK, model="idle")
    assert trial.wire, "it never asked its model"
    assert trial.files == ()


@pytest.mark.parametrize("cli", ["claude-code"], indirect=True)
def test_a_session_outlives_429_dropped_streams_and_malformed_calls(cli):
    trial = try_harness(cli, TASK, model="flaky")
    assert trial.native.finished, (trial.native, trial.stderr)
    assert "solution.py" in trial.files


@pytest.mark.parametrize("cli", ["qwen-code"], indirect=True)
def test_a_chunk_that_breaks_the_cli_is_no_success(cli):
    trial = try_harness(cli, TASK, model="flaky")
    assert not trial.native.finished
    assert "JSON" in trial.native.error


@pytest.mark.parametrize("cli", ["qwen-code"], indirect=True)
def test_a_dead_connection_is_no_success(cli):
    trial = play(cli, TASK, "http://127.0.0.1:9/v1", "oracle", [])
    assert not trial.native.finished
    assert trial.native.error
