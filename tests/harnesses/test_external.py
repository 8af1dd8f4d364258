"""The vendors' CLIs as agents of real sweeps: sandbox, gateway, desk, archive."""

import pytest

from command_line import run_in
from external_sweeps import notes, of, only_attempt, run_sessions
from orchestrator.agents.harnesses.base import log_of
from orchestrator.agents.install import is_installed
from orchestrator.agents.registry import HARNESSES, harness
from transcripts.checks import attempt_problems
from transcripts.events import BenchRun, CheckRun, Note, Reply, Retry, ToolCallStarted, ToolResult
from transcripts.native import native_log
from transcripts.wire import WireFolder
from transcripts.words import End

pytestmark = pytest.mark.alone  # each starts a runtime of its own and has a time limit


@pytest.fixture
def cli(request):
    if not is_installed(harness(request.param)):
        pytest.skip(f"`orchestrator harness install {request.param}` has not been run here")
    return request.param


def is_whole_session(archive, cli):
    """A kernel written by tool calls, checked, measured and handed in; told alike by both logs."""
    folder = only_attempt(archive)
    record = folder.record
    assert (record.outcome.end, record.outcome.reason) == (End.SUBMITTED, "last_state")
    assert record.entrant.harness == cli
    assert record.entrant.harness_version == harness(cli).package.version
    assert cli in record.fingerprint.versions
    calls, results = of(ToolCallStarted, folder), of(ToolResult, folder)
    # mini-swe-agent hands in by a command whose result no request brings back.
    assert len(results) >= len(calls) - 1 >= 6
    assert [run.passed for run in of(CheckRun, folder)] == [True]
    assert len(of(BenchRun, folder)) == 1
    wire = [one for one in WireFolder(folder.path).exchanges() if one.facts["usage"]]
    assert len(wire) == len(of(Reply, folder))
    log, _ = log_of(native_log(folder.path))
    assert harness(cli).read(log).finished
    assert notes(folder, "wire_disagreement") == []
    # The CLI's own store is nowhere: what the session left is what it wrote by its tools.
    left = {path for path, _, _ in folder.workspace_files()}
    assert left == {"README.md", "solution.py", "test_solution.py"}
    assert not folder.workspace.exists()
    assert attempt_problems(folder) == []
    return folder


@pytest.mark.parametrize("cli", HARNESSES, indirect=True)
def test_a_session_in_bubblewrap_and_its_replay(cli, tmp_path):
    archive = tmp_path / "archive"
    run_sessions(archive, cli, "oracle")
    folder = is_whole_session(archive, cli)
    shown = run_in(tmp_path, "replay", folder.id, "--archive", str(archive))
    assert shown.code == 0, shown.err
    assert "check: pass" in shown.out
    assert "$ ls -la" in shown.out
    assert "+++ b/solution.py" in shown.out or "cat > solution.py" in shown.out


@pytest.mark.docker
@pytest.mark.parametrize("cli", ["claude-code", "codex", "mini-swe-agent"], indirect=True)
def test_a_session_in_docker(cli, tmp_path):
    run_sessions(tmp_path / "archive", cli, "oracle", sandbox="docker")
    folder = is_whole_session(tmp_path / "archive", cli)
    assert folder.record.fingerprint.sandbox == "docker"


@pytest.mark.parametrize("cli", HARNESSES, indirect=True)
def test_a_session_outlives_429_a_dropped_answer_and_malformed_calls(cli, tmp_path):
    run_sessions(tmp_path / "archive", cli, "shaky")
    folder = only_attempt(tmp_path / "archive")
    assert folder.record.outcome.end is End.SUBMITTED
    assert [run.passed for run in of(CheckRun, folder)] == [True]
    retried = [one.error for one in of(Retry, folder)]
    assert "rate_limit" in retried
    broken = [one.raw["kind"] for one in of(Note, folder) if one.topic == "unanswered"]
    assert "dropped_stream" in [*retried, *broken]
    asked = [one.call for one in of(ToolCallStarted, folder)]
    assert any(call.name == "shell" for call in asked), "no unknown tool was called"
    assert any("echo half" in call.arguments for call in asked), "no call was cut"
