"""Players: each dialect's own tool semantics, executed again in one of our sandboxes.

A player answers as the recorded harness did: the same words for the same effect, so that a result
of the replay can be compared with the record.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from graders.base import PublicReport
from orchestrator.agents.tools import Toolbox
from orchestrator.errors import UserError
from orchestrator.turns.turns import Ticket
from sandboxes.base import Sandbox
from transcripts.events import ToolCall
from transcripts.replay import (
    EditRefused,
    ToolStep,
    apply_edits,
    edits_of,
    relocate,
    workspace_path,
)

DEFAULT_TIMEOUT_S = 600.0
"""For recorded commands without one: pi sets none, and a replay must end."""

_READ_LINES = 2000
"""Lines that pi's `read` shows at most."""


class Player(Protocol):
    """Executes recorded tool calls."""

    def play(self, step: ToolStep) -> str | None:
        """The answer of this run to a recorded call; None where it is not repeated."""
        ...


class _NoBench:
    """For a replay, which never asks."""

    def check(self) -> PublicReport:
        raise AssertionError("`check` is not repeated")

    def bench(self, wait_by: Callable[[Ticket], None] = lambda _: None) -> PublicReport:
        del wait_by
        raise AssertionError("`bench` is not repeated")

    def digest(self) -> str:
        raise AssertionError("nobody asks at a desk")


class LoopPlayer:
    """Our own loop's tools. `check`, `bench` and `submit` change no file and are not repeated."""

    _JUDGED = frozenset({"check", "bench", "submit"})

    def __init__(self, sandbox: Sandbox, submission_file: str) -> None:
        self._toolbox = Toolbox(sandbox, _NoBench(), submission_file)

    def play(self, step: ToolStep) -> str | None:
        """See `Player.play`. An interrupted call is repeated: its effects are in the record."""
        if step.name in self._JUDGED:
            return None
        call = ToolCall(id=step.call_id, name=step.name, arguments=step.arguments_text)
        return self._toolbox.run(call).text


class PiPlayer:
    """The pi coding agent's write, edit, read and bash; its folder is the workspace."""

    def __init__(self, sandbox: Sandbox, recorded_cwd: str | None) -> None:
        self._sandbox = sandbox
        self._cwd = recorded_cwd
        self._tools: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
            "write": self._write,
            "edit": self._edit,
            "read": self._read,
            "bash": self._bash,
        }

    def play(self, step: ToolStep) -> str | None:
        """See `Player.play`."""
        tool = self._tools.get(step.name)
        if tool is None or step.arguments is None:
            return None
        try:
            return tool(step.arguments)
        except FileNotFoundError as error:
            return f"ENOENT: no such file or directory, access '{error}'"
        except (KeyError, TypeError, ValueError) as error:
            return f"{step.name} refused its arguments: {error}"

    def _write(self, arguments: Mapping[str, Any]) -> str:
        path, content = str(arguments["path"]), str(arguments["content"])
        self._put(path, content)
        # The harness counts as its language does: UTF-16 units, which it calls bytes.
        units = len(content.encode("utf-16-le", "surrogatepass")) // 2
        return f"Successfully wrote {units} bytes to {path}"

    def _edit(self, arguments: Mapping[str, Any]) -> str:
        path, edits = str(arguments["path"]), edits_of(arguments)
        text = self._get(path).decode("utf-8", "surrogateescape")
        try:
            self._put(path, apply_edits(text, edits))
        except EditRefused as error:
            return f"Could not edit {path}: {error}"
        blocks = f"{len(edits)} block(s)" if "edits" in arguments else "text"
        return f"Successfully replaced {blocks} in {path}."

    def _read(self, arguments: Mapping[str, Any]) -> str:
        lines = self._get(str(arguments["path"])).decode("utf-8", "replace").split("\n")
        start = max(int(arguments.get("offset") or 1), 1)
        end = start - 1 + int(arguments.get("limit") or _READ_LINES)
        return "\n".join(lines[start - 1 : end])

    def _bash(self, arguments: Mapping[str, Any]) -> str:
        command = relocate(str(arguments["command"]), self._cwd, self._sandbox.home)
        timeout_s = float(arguments.get("timeout") or DEFAULT_TIMEOUT_S)
        result = self._sandbox.exec(["/bin/bash", "-c", command], timeout_s=timeout_s)
        text = result.output.decode("utf-8", "replace")
        if result.timed_out:
            return f"{text}\n\nCommand timed out after {timeout_s:g} seconds"
        if result.exit_code:
            return f"{text}\n\nCommand exited with code {result.exit_code}"
        return text or "(no output)"

    def _put(self, path: str, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        self._sandbox.put(workspace_path(path, self._cwd), data)

    def _get(self, path: str) -> bytes:
        return self._sandbox.get(workspace_path(path, self._cwd))


def player_for(dialect: str, sandbox: Sandbox, submission_file: str, cwd: str | None) -> Player:
    """The player of a dialect. Raises UserError for one that cannot be executed yet."""
    if dialect == "loop":
        return LoopPlayer(sandbox, submission_file)
    if dialect == "pi":
        return PiPlayer(sandbox, cwd)
    raise UserError(
        f"sessions of `{dialect}` can be watched, not executed: its tools are not known here. "
        "Leave out --execute."
    )
