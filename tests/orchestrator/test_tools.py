"""Tool calls are answered in words, whatever the model wrote."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from graders.base import PublicReport
from orchestrator.agents.tools import TOOLS, Toolbox
from sandboxes.base import SandboxSpec
from sandboxes.registry import provider
from sandboxes.toolchain import host_toolchain
from transcripts.events import ToolCall


class NoBench:
    """For sessions without a grader."""

    def check(self) -> PublicReport:
        return PublicReport(True, "pass", "right")

    def bench(self) -> PublicReport:
        return PublicReport(True, "pass", "1 ms", {"a": 1.0})


@pytest.fixture
def toolbox(tmp_path: Path) -> Iterator[Toolbox]:
    toolchain = host_toolchain()
    spec = SandboxSpec("s", "test", tmp_path / "state", toolchain.mounts, toolchain.env)
    sandbox = provider("process").start(spec)
    yield Toolbox(sandbox, NoBench(), "solution.py")
    sandbox.close()


def ask(toolbox: Toolbox, name: str, arguments: object) -> tuple[str, str]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    answer = toolbox.run(ToolCall(id="c", name=name, arguments=text))
    return answer.status, answer.text


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{",
        "null",
        "[]",
        '{"command": 7}',
        '{"command": "ls", "shell": "zsh"}',
        "[" * 200_000,
        '{"command": "ls", "timeout_s": ' + "9" * 5000 + "}",
        '{"command": "ls", "timeout_s": -1}',
        '{"command": "ls", "timeout_s": NaN}',
    ],
)
def test_broken_arguments_are_bad_calls(toolbox: Toolbox, arguments: str) -> None:
    status, text = ask(toolbox, "bash", arguments)
    assert status == "bad_call"
    assert "Nothing was done" in text


def test_an_unknown_tool_is_told_the_known_ones(toolbox: Toolbox) -> None:
    status, text = ask(toolbox, "shell", {})
    assert status == "bad_call"
    assert all(name in text for name in TOOLS)


def test_text_that_is_no_unicode_is_refused_or_kept_never_a_crash(toolbox: Toolbox) -> None:
    assert ask(toolbox, "write", {"path": "a.py", "content": "x = 1\n"})[0] == "ok"
    status, _ = ask(toolbox, "edit", '{"path": "a.py", "old": "x = 1", "new": "\\ud800"}')
    assert status == "error"
    assert ask(toolbox, "view", {"path": "a.py"})[1].endswith("x = 1\n     2\t")
    assert ask(toolbox, "write", '{"path": "b", "content": "\\ud800"}')[0] == "ok"


@pytest.mark.parametrize(
    "path", ["../out", "/etc/passwd", "a/../../out", "x\0y", "", ".", "n" * 300]
)
@pytest.mark.parametrize("tool", ["write", "view", "edit"])
def test_paths_outside_or_impossible_are_errors(toolbox: Toolbox, tool: str, path: str) -> None:
    arguments = {
        "write": {"path": path, "content": "x"},
        "view": {"path": path},
        "edit": {"path": path, "old": "a", "new": "b"},
    }[tool]
    assert ask(toolbox, tool, arguments)[0] == "error"


def test_an_edit_must_fit_exactly_once(toolbox: Toolbox) -> None:
    ask(toolbox, "write", {"path": "a", "content": "one two two\r\nthree\r\n"})
    assert ask(toolbox, "edit", {"path": "a", "old": "two", "new": "2"})[0] == "error"
    assert ask(toolbox, "edit", {"path": "a", "old": "four", "new": "4"})[0] == "error"
    assert ask(toolbox, "edit", {"path": "a", "old": "one", "new": "1"})[0] == "ok"
    assert "1 two two" in ask(toolbox, "view", {"path": "a"})[1]


def test_a_timeout_kills_and_says_so(toolbox: Toolbox) -> None:
    status, text = ask(toolbox, "bash", {"command": "echo before; sleep 60", "timeout_s": 0.3})
    assert status == "timeout"
    assert "before" in text
    assert "killed after 0.3 s" in text


def test_handing_in_needs_the_file(toolbox: Toolbox) -> None:
    assert ask(toolbox, "submit", {})[0] == "error"
    ask(toolbox, "write", {"path": "solution.py", "content": " \n"})
    assert ask(toolbox, "submit", {})[0] == "error"
    ask(toolbox, "write", {"path": "solution.py", "content": "x = 1\n"})
    assert ask(toolbox, "submit", {}) == ("ok", "Handed in.")
