"""Starting a CLI, installing it, and comparing its log with the wire, without any CLI."""

import subprocess

import pytest

from orchestrator.agents.agreement import WireCall, disagreements
from orchestrator.agents.harnesses.base import Launch, NativeLog, log_of, script
from orchestrator.agents.install import NotInstalled, root_of, tree_digest
from orchestrator.agents.registry import HARNESSES, UnknownHarness, harness
from transcripts.records import Usage


def run(launch):
    done = subprocess.run(script(launch), capture_output=True, check=False)
    return done.returncode, *log_of(done.stdout)


def test_home_is_written_before_and_gone_afterwards():
    launch = Launch(
        ["sh", "-c", 'pwd >/dev/null; cat "$HOME/a/it\'s"; echo; echo "$HOME"; cat'],
        files={"a/it's": "text 'quoted' $HOME"},
        stdin="asked",
    )
    code, log, _ = run(launch)
    text, home, asked = log.splitlines()
    assert (code, text, asked) == (0, "text 'quoted' $HOME", "asked")
    assert subprocess.run(["ls", home], capture_output=True, check=False).returncode != 0


def test_exit_code_and_stderr_survive_and_stay_apart():
    assert run(Launch(["sh", "-c", "echo out; echo err >&2; exit 7"])) == (7, "out\n", "err\n")


def test_a_log_file_is_preferred_to_the_output():
    _, log, _ = run(Launch(["sh", "-c", 'echo chatter; echo "{}" > "$HOME/log"'], log_file="log"))
    assert log == "{}\n"


def test_disagreement_names_each_figure():
    wire = [WireCall(Usage(input_tokens=5, cache_read_tokens=5, output_tokens=2), 1)]
    same = NativeLog(True, "", 1, Usage(input_tokens=10, output_tokens=2))
    assert disagreements(same, wire) == ()
    other = NativeLog(True, "", 2, Usage(input_tokens=10, output_tokens=3))
    assert [line.partition(":")[0] for line in disagreements(other, wire)] == [
        "tool calls",
        "output tokens",
    ]


@pytest.mark.parametrize("name", HARNESSES)
def test_a_log_that_says_nothing_is_no_finished_session(name):
    assert not harness(name).read("").finished
    assert not harness(name).read("Fatal: not json\n{torn").finished


def test_unknown_and_uninstalled_harnesses_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_ORCHESTRATOR_HARNESSES", str(tmp_path))
    with pytest.raises(UnknownHarness, match="codex"):
        harness("codx")
    with pytest.raises(NotInstalled, match="harness install codex"):
        root_of(harness("codex"))


def test_the_digest_sees_a_changed_file(tmp_path):
    (tmp_path / "a").write_text("1")
    before = tree_digest(tmp_path)
    (tmp_path / "a").write_text("2")
    assert tree_digest(tmp_path) != before
