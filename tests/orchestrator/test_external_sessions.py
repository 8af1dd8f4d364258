"""The external agent with a harness of one small file: real sweep, gateway, desk, bubblewrap."""

import json
import signal
from pathlib import Path

import pytest

import live_sweep
import tiny_harness
from command_line import run_in
from external_sweeps import TASK, attempts, notes, of, only_attempt, run_sessions
from orchestrator.agents.chosen import AgentDoesNotFit
from orchestrator.agents.install import NotInstalled
from providers import JSON, Upstream
from transcripts.checks import attempt_problems
from transcripts.events import (
    CheckRun,
    Note,
    Prompt,
    Reply,
    Retry,
    SessionEnd,
    Submission,
    ToolCallStarted,
    ToolResult,
)
from transcripts.native import native_log
from transcripts.records import Budget
from transcripts.wire import WireFolder
from transcripts.words import End

TINY = "tiny_harness:Tiny"
THROUGH_THE_PROXY = """
import base64, http.client, os, sys, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
words = base64.b64encode(f"x:{proxy.password}".encode()).decode()
there = http.client.HTTPConnection(proxy.hostname, proxy.port)
there.set_tunnel("127.0.0.1", int(sys.argv[1]), {"Proxy-Authorization": "Basic " + words})
there.request("POST", "/from-inside", "hello")
print(there.getresponse().status)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_ORCHESTRATOR_HARNESSES", str(tmp_path / "harnesses"))
    tiny_harness.install()


@pytest.fixture
def archive(tmp_path):
    return tmp_path / "archive"


@pytest.fixture
def upstream():
    made = Upstream()
    yield made
    made.close()


@pytest.fixture
def provider(upstream, tmp_path):
    """A model whose provider answers what the test says; the roster file that names it."""
    path = tmp_path / "models.toml"
    path.write_text(
        f'[models.m]\nprotocol = "openai"\nbase_url = "{upstream.url}/v1"\nmodel = "m"\n'
    )
    return path


def answer(*commands, text=""):
    calls = [
        {
            "id": f"call_{number}_{command[:8]}",
            "type": "function",
            "function": {"name": "bash", "arguments": json.dumps({"command": command})},
        }
        for number, command in enumerate(commands)
    ]
    message = {"role": "assistant", "content": text, "tool_calls": calls or None}
    body = {
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }
    return 200, JSON, [json.dumps(body).encode()]


def test_a_session_is_told_by_its_wire_and_sealed_with_it(archive):
    run_sessions(archive, TINY, "oracle")
    folder = only_attempt(archive)
    record = folder.record
    assert (record.outcome.end, record.outcome.reason) == (End.SUBMITTED, "last_state")
    assert "solution.py" in [one.path for one in record.submission]
    assert (record.entrant.harness, record.entrant.harness_version) == ("tiny", "1.0")
    assert record.fingerprint.versions["tiny"] == "pypi:tiny@1.0"
    replies, calls, results = (of(kind, folder) for kind in (Reply, ToolCallStarted, ToolResult))
    assert record.steps == len(replies) == len(calls) + 1
    assert [one.call.id for one in calls] == [one.call_id for one in results]
    assert record.usage == sum((one.usage for one in replies[1:]), replies[0].usage)
    assert [one.text for one in of(Prompt, folder)][1:] == ["You are tiny."]
    (check,) = of(CheckRun, folder)
    assert check.passed
    assert notes(folder, "wire_disagreement") == notes(folder, "unanswered") == []
    exchanges = list(WireFolder(folder.path).exchanges())
    assert len(exchanges) == len(replies)
    assert all(b"solution.py" in one.received for one in exchanges)
    assert b'{"end": true}' in native_log(folder.path)
    sealed = json.loads((folder.path / "seal.json").read_text())["record"]["files"]
    assert {"native.log.zst", "wire/000000.zst"} <= set(sealed)


def test_each_step_is_told_once(archive, capfd):
    run_sessions(archive, TINY, "oracle", mode="json")
    said = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    steps = [one["step"] for one in said if one["event"] == "step"]
    assert sorted(set(steps)) == list(range(1, only_attempt(archive).record.steps + 1))
    assert len(steps) <= len(set(steps)) + 1  # the end says once more where it stands


def test_its_archive_is_whole_and_its_transcript_is_replayed(archive, tmp_path):
    run_sessions(archive, TINY, "oracle")
    assert run_in(tmp_path, "archive", "verify", "--archive", str(archive)).code == 0
    shown = run_in(tmp_path, "replay", only_attempt(archive).id, "--archive", str(archive))
    assert shown.code == 0, shown.err
    assert "$ ls -la" in shown.out
    assert "check: pass" in shown.out


def test_a_session_outlives_429_a_dropped_answer_and_malformed_calls(archive):
    run_sessions(archive, TINY, "shaky")
    folder = only_attempt(archive)
    assert folder.record.outcome.end is End.SUBMITTED
    assert [one.error for one in of(Retry, folder)] == ["rate_limit", "dropped_stream"]
    assert any(one.text.startswith("bad call") for one in of(ToolResult, folder))


def test_a_log_that_contradicts_the_wire_is_noted(archive):
    run_sessions(archive, "tiny_harness:Boaster", "oracle")
    (said,) = notes(only_attempt(archive), "wire_disagreement")
    assert said.startswith("tool calls")


def test_success_without_a_single_answer_is_none(archive):
    result = run_sessions(archive, "tiny_harness:Silent", "oracle")
    (outcome,) = result.resumable
    assert (outcome.end, outcome.reason) == (End.INFRA_FAULT, "harness_failed")
    assert only_attempt(archive).is_sealed
    run_sessions(archive, "tiny_harness:Silent", "oracle")
    assert len(attempts(archive)) == 2  # a new attempt each time: nothing can be gone on with


def test_idle_hands_in_nothing(archive):
    run_sessions(archive, TINY, "idle")
    assert only_attempt(archive).record.outcome.end is End.NO_SUBMISSION


@pytest.mark.parametrize(
    ("budget", "model", "reason"),
    [
        (Budget(max_steps=3), "oracle", "steps"),
        (Budget(max_tokens=1000), "oracle", "tokens"),
        (Budget(max_seconds=3.0), "longhaul?tool_s=600", "seconds"),
    ],
)
def test_caps_end_a_session(archive, budget, model, reason):
    run_sessions(archive, TINY, model, budget=budget)
    folder = only_attempt(archive)
    assert (folder.record.outcome.end, folder.record.outcome.reason) == (End.LIMIT, reason)
    if budget.max_steps:
        assert folder.record.steps == budget.max_steps


def test_a_refusing_provider_is_no_end_of_the_models(archive, upstream, provider):
    upstream.answers = [answer("ls"), (401, JSON, [b'{"error": {"message": "no"}}'])]
    (outcome,) = run_sessions(archive, TINY, "m", config=provider).resumable
    assert (outcome.end, outcome.reason) == (End.PROVIDER_FAULT, "bad_key")
    folder = only_attempt(archive)
    assert folder.is_sealed
    assert folder.record.steps == 1
    (note,) = [one for one in of(Note, folder) if one.topic == "unanswered"]
    assert note.raw == {"kind": "bad_key", "status": 401}


def test_submit_hands_in_at_once(archive, upstream, provider):
    upstream.answers = [answer("echo x = 1 > solution.py", "submit"), answer("rm solution.py")]
    run_sessions(archive, TINY, "m", config=provider)
    folder = only_attempt(archive)
    assert (folder.record.outcome.end, folder.record.outcome.reason) == (End.SUBMITTED, "")
    (handed,) = of(Submission, folder)
    assert handed.explicit
    assert [one.path for one in handed.files] == ["solution.py"]
    assert len(upstream.seen) == 1, "the model was asked after the hand-in"


def test_submit_without_a_submission_is_refused_and_the_session_goes_on(
    archive, upstream, provider
):
    upstream.answers = [answer("submit"), answer(text="I give up.")]
    run_sessions(archive, TINY, "m", config=provider)
    folder = only_attempt(archive)
    (result,) = of(ToolResult, folder)
    assert "no solution.py to hand in" in result.text
    assert folder.record.outcome.end is End.NO_SUBMISSION
    assert len(upstream.seen) == 2


def test_a_harness_that_its_model_kills_has_ended_by_the_models_doing(archive, upstream, provider):
    upstream.answers = [answer("echo x = 1 > solution.py; kill -9 $PPID; sleep 5")]
    run_sessions(archive, TINY, "m", config=provider)
    outcome = only_attempt(archive).record.outcome
    assert (outcome.end, outcome.reason) == (End.SUBMITTED, "last_state")


def test_another_model_than_asked_for_is_noted(archive):
    run_sessions(archive, TINY, "oracle?impostor=1")
    (said,) = notes(only_attempt(archive), "served_model")
    assert "impostor" in said


def test_the_key_is_nowhere_in_the_archive(archive, upstream, provider, monkeypatch):
    key = "sk-a-key-that-nobody-may-see"
    monkeypatch.setenv("TINY_KEY", key)
    provider.write_text(provider.read_text() + 'key = "TINY_KEY"\n')
    upstream.answers = [answer(f"echo {key}; env"), answer(text=f"done {key}")]
    run_sessions(archive, TINY, "m", config=provider)
    folder = only_attempt(archive)
    assert f"Bearer {key}" in str(upstream.seen[0]["headers"])
    kept = [native_log(folder.path), *(line for line in folder.lines())]
    for one in WireFolder(folder.path).exchanges():
        kept += [one.received, one.sent, one.response]
    assert key.encode() not in b"".join(kept)


def test_an_allowed_host_is_reached_and_part_of_the_entrant(archive, upstream, provider):
    port = upstream.url.rpartition(":")[2]
    commands = [f"python3 -c '{THROUGH_THE_PROXY}' {n}" for n in (port, 9)]
    upstream.answers = [answer(*commands), (200, JSON, [b"there"]), answer(text="done")]
    run_sessions(archive, TINY, "m", config=provider, allow_net=[f"127.0.0.1:{port}"])
    folder = only_attempt(archive)
    assert folder.record.entrant.network == f"127.0.0.1:{port}"
    assert [seen["path"] for seen in upstream.seen][1] == "/from-inside"
    assert of(ToolResult, folder)[0].text.strip() == "200"
    reached, refused = notes(folder, "network")
    assert reached.startswith(f"127.0.0.1:{port}: ")
    assert refused == "127.0.0.1:9: not on the list"


# --- ends of the orchestrator ---------------------------------------------------------------------


def command(model, *more):
    words = ("sweep", "--agent", TINY, "--models", model, "--tasks", TASK, "--tier", "quick")
    return [*words, "--sandbox", "bubblewrap", *more]


def support():
    """Where a process of its own finds the harness, and the product as it is here."""
    return {"PYTHONPATH": str(Path(tiny_harness.__file__).parent)}


def test_a_killed_orchestrator_loses_nothing_and_a_new_attempt_starts(archive, tmp_path):
    model = "longhaul?steps=12&tool_s=0.3"
    with live_sweep.started(tmp_path, command(model), **support()) as process:
        live_sweep.wait_for_results(tmp_path, 3)
        process.kill()
    result = run_sessions(archive, TINY, model)
    assert [one.end for one in result.ended] == [End.SUBMITTED]
    lost, done = attempts(archive)
    assert (lost.record.outcome.end, lost.record.outcome.reason) == (
        End.INTERRUPTED,
        "not_resumable",
    )
    assert len(of(ToolResult, lost)) >= 3
    assert lost.record.steps >= 3
    assert of(SessionEnd, lost)
    assert "progress.log" in [path for path, _, _ in lost.workspace_files()]
    assert native_log(lost.path)
    assert done.record.outcome.end is End.SUBMITTED
    for folder in (lost, done):
        assert attempt_problems(folder) == []


def test_a_signal_ends_a_session_as_interrupted_and_sealed(archive, tmp_path):
    model = "longhaul?steps=1000&tool_s=0.3"
    with live_sweep.started(tmp_path, command(model), **support()) as process:
        live_sweep.wait_for_results(tmp_path, 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
    folder = only_attempt(archive)
    assert folder.is_sealed
    assert folder.record.outcome.end is End.INTERRUPTED
    assert folder.record.outcome.reason == "stop_requested"


# --- what a person gets wrong ---------------------------------------------------------------------


def test_a_sandbox_that_mounts_nothing_is_refused(archive):
    with pytest.raises(AgentDoesNotFit, match="apt-get install bubblewrap"):
        run_sessions(archive, TINY, "oracle", sandbox="process")
    assert not archive.exists()


def test_a_model_of_another_dialect_is_refused_with_what_would_do(archive, tmp_path):
    config = tmp_path / "models.toml"
    config.write_text('[models.m]\nprotocol = "anthropic"\nbase_url = "http://x"\nmodel = "m"\n')
    with pytest.raises(AgentDoesNotFit, match="claude-code"):
        run_sessions(archive, TINY, "m", config=config)
    assert not archive.exists()


def test_our_own_loop_has_no_network_to_allow(archive):
    with pytest.raises(AgentDoesNotFit, match="for harnesses"):
        run_sessions(archive, "loop", "oracle", allow_net=["pypi.org"])


def test_an_agent_that_is_not_installed_says_the_command(archive):
    with pytest.raises(NotInstalled, match="harness install codex"):
        run_sessions(archive, "codex", "oracle")


def test_a_changed_installation_is_refused(archive):
    (tiny_harness.folder_of(tiny_harness.Tiny()) / "tiny.py").write_text("print(1)")
    with pytest.raises(NotInstalled, match="--again"):
        run_sessions(archive, TINY, "oracle")
