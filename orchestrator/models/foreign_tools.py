"""A story's steps played through the tools of a foreign harness.

Stories speak our own loop's tools. Where a request offers others, each call becomes one that the
request offers: by the tool's name where it is known, else by a shell-like tool's shape.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.models.stories import Say

OWN_TOOLS = frozenset({"bash", "write", "check", "submit"})
"""A request that offers all of these is our own loop's."""

SHELLS: Mapping[str, str] = {
    "Bash": "command",  # Claude Code
    "bash": "command",  # OpenCode, mini-swe-agent
    "exec_command": "cmd",  # Codex
    "shell_command": "command",  # Codex
    "shell": "command",  # Codex, an array
    "run_shell_command": "command",  # Gemini CLI, Qwen Code
}
"""Tool -> its argument that holds the command."""

WRITERS: Mapping[str, tuple[str, str]] = {
    "Write": ("file_path", "content"),  # Claude Code
    "write": ("filePath", "content"),  # OpenCode
    "write_file": ("file_path", "content"),  # Gemini CLI, Qwen Code
}
"""Tool -> its arguments that hold a path (absolute where the request says the folder) and the
text."""

_LEAVE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""What mini-swe-agent waits for as a command's output: its hand-in."""
_FENCE = "```mswea_bash_command"
"""Where a prompt names it, commands are fenced text and no tools are offered."""
_CWD = re.compile(
    r"(?:working (?:in the )?directory(?: is)?:? ?|<cwd>)(?:\\n)?[\s*`-]*(/[^\s\"'\\<`]*)", re.I
)


def speaks_our_tools(tools: Sequence[Mapping[str, Any]], request: Mapping[str, Any]) -> bool:
    """Whether a request comes from our own loop, or from a bare client that offers nothing."""
    if tools:
        return {tool["name"] for tool in tools} >= OWN_TOOLS
    instructed = any(request.get(key) for key in ("system", "instructions", "systemInstruction"))
    roles = {message.get("role") for message in request.get("messages") or ()}
    return not instructed and not roles & {"system", "developer"}


@dataclass(frozen=True)
class _Shell:
    name: str
    argument: str
    is_array: bool


class Foreign:
    """What one request of a foreign harness offers. ``body`` is the request's text."""

    def __init__(self, tools: Sequence[Mapping[str, Any]], body: str) -> None:
        self._schemas = {tool["name"]: tool.get("parameters") or {} for tool in tools}
        self._shell = _shell(self._schemas)
        self._leaves_by_command = _LEAVE in body
        self._fenced = self._shell is None and _FENCE in body
        found = _CWD.search(body)
        self._cwd = found[1].rstrip("/.") if found else None

    @property
    def can_play(self) -> bool:
        """False for a side request (a title, a topic): it offers nothing to work with."""
        return self._shell is not None or self._fenced

    def said(self, say: Say) -> Say:
        """``say`` in the words of the tools that are offered."""
        if self._fenced:
            return self._in_fences(say)
        if say.calls and say.calls[0][0] == "submit" and not self._leaves_by_command:
            return Say(say.text or "It is done.", (), say.reasoning)
        return Say(say.text, tuple(self._call(*call) for call in say.calls), say.reasoning)

    def _in_fences(self, say: Say) -> Say:
        if not say.calls:
            return say
        command = self._command(*say.calls[0]) or "true"
        return Say(f"{say.text}\n\n{_FENCE}\n{command}\n```".strip(), (), say.reasoning)

    def _call(self, name: str, arguments: str) -> tuple[str, str]:
        writer = next((tool for tool in WRITERS if tool in self._schemas), None)
        if name == "write" and writer:
            path, content = WRITERS[writer]
            asked = json.loads(arguments)
            where = f"{self._cwd}/{asked['path']}" if self._cwd else asked["path"]
            filled = {path: where, content: asked["content"]}
            return writer, self._complete(writer, filled)
        assert self._shell is not None, "a request without a shell is not played"
        command = self._command(name, arguments)
        if command is None:
            return (self._shell.name if name == "bash" else name), arguments
        said: Any = ["bash", "-lc", command] if self._shell.is_array else command
        return self._shell.name, self._complete(self._shell.name, {self._shell.argument: said})

    def _command(self, name: str, arguments: str) -> str | None:
        """The command line that does the same; None for a call that is wrong on purpose."""
        try:
            asked = json.loads(arguments)
            if name == "bash":
                return str(asked["command"])
            if name == "view":
                return f"cat {shlex.quote(asked['path'])}"
            if name == "write":
                return _written(asked["path"], asked["content"])
        except (KeyError, ValueError):
            return None
        if name == "submit":
            return f"echo {_LEAVE}"
        return name if name in ("check", "bench") else None

    def _complete(self, tool: str, arguments: dict[str, Any]) -> str:
        """The arguments as JSON, with a plain value for each other one that is required."""
        schema = self._schemas[tool]
        properties = schema.get("properties") or {}
        for name in schema.get("required") or ():
            if name not in arguments:
                arguments[name] = _plain(properties.get(name) or {})
        return json.dumps(arguments)


def _written(path: str, content: str) -> str:
    folder = shlex.quote(path.rpartition("/")[0] or ".")
    end = "" if content.endswith("\n") else "\n"
    return (
        f"mkdir -p {folder} && cat > {shlex.quote(path)} <<'END_OF_FILE'\n{content}{end}END_OF_FILE"
    )


def _shell(schemas: Mapping[str, Mapping[str, Any]]) -> _Shell | None:
    for name, argument in SHELLS.items():
        if name in schemas:
            return _Shell(name, argument, _is_array(schemas[name], argument))
    for name, schema in schemas.items():
        for argument in ("command", "cmd"):
            if argument in (schema.get("properties") or {}):
                return _Shell(name, argument, _is_array(schema, argument))
    return None


def _is_array(schema: Mapping[str, Any], argument: str) -> bool:
    shape = (schema.get("properties") or {}).get(argument) or {}
    return str(shape.get("type")).lower() == "array"


def _plain(shape: Mapping[str, Any]) -> Any:
    if shape.get("enum"):
        return shape["enum"][0]
    kind = str(shape.get("type")).lower()
    plain = {"boolean": False, "array": [], "object": {}, "integer": 1, "number": 1}
    return plain.get(kind, "A step of the session")
