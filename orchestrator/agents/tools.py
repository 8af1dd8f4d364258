"""The tools of our own loop: what they are called, what they take, what they do.

A tool is answered in words whatever happens: a bad call never ends a session. Errors of the
sandbox itself (`SandboxError`) pass through; they are not the model's doing.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graders.base import PublicReport
from orchestrator.agents.base import Bench
from orchestrator.models.base import ToolSpec
from sandboxes.base import ExecResult, Sandbox
from sandboxes.errors import FileTooLarge, OutsideWorkspace
from transcripts.events import ToolCall
from transcripts.replay import EditRefused, apply_edits

DEFAULT_TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 3600.0
VIEW_LINES = 400
"""Lines that `view` shows when no end is given: enough for a kernel, short of flooding a window."""


@dataclass(frozen=True)
class ToolAnswer:
    """What the model is told, and what the transcript keeps beside it."""

    text: str
    status: Literal["ok", "error", "timeout", "bad_call"] = "ok"
    exit_code: int | None = None
    report: PublicReport | None = None  # of check or bench


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class BashArguments(_Arguments):
    """Run a command with bash in the workspace. Output of both streams, stdin closed."""

    command: str = Field(description="The command line.")
    timeout_s: float = Field(
        DEFAULT_TIMEOUT_S, gt=0, le=MAX_TIMEOUT_S, description="Seconds before it is killed."
    )


class ViewArguments(_Arguments):
    """Show a text file of the workspace with line numbers."""

    path: str = Field(description="Relative to the workspace.")
    start: int = Field(1, ge=1, description="First line.")
    end: int | None = Field(None, ge=1, description="Last line.")


class WriteArguments(_Arguments):
    """Write a whole file of the workspace; folders are made."""

    path: str = Field(description="Relative to the workspace.")
    content: str = Field(description="The whole new content.")


class EditArguments(_Arguments):
    """Replace text in a file; the old text must occur exactly once."""

    path: str = Field(description="Relative to the workspace.")
    old: str = Field(min_length=1, description="The text to replace, exactly as it is.")
    new: str = Field(description="The text to put in its place.")


class NoArguments(_Arguments):
    """No arguments."""


@dataclass(frozen=True)
class _Tool:
    name: str
    arguments: type[_Arguments]
    description: str
    run: Callable[["Toolbox", Any], ToolAnswer]


class Toolbox:
    """Executes tool calls in one sandbox."""

    def __init__(
        self,
        sandbox: Sandbox,
        bench: Bench,
        submission_file: str,
        seconds_left: Callable[[], float] = lambda: inf,
    ) -> None:
        self._sandbox = sandbox
        self._bench = bench
        self._submission_file = submission_file
        self._seconds_left = seconds_left  # of the session: no command outlives its cap

    def run(self, call: ToolCall) -> ToolAnswer:
        """Execute one call. Raises SandboxError only."""
        tool = TOOLS.get(call.name)
        if tool is None:
            return _bad(f"There is no tool `{call.name}`. The tools are: {', '.join(TOOLS)}.")
        try:
            arguments = tool.arguments.model_validate(json.loads(call.arguments or "{}"))
        except ValidationError as error:
            return _bad(f"Wrong arguments for `{call.name}`: {_mistakes(error)}. Nothing was done.")
        except (ValueError, RecursionError) as error:
            # ValueError: besides broken JSON, numbers of thousands of digits.
            return _bad(
                f"The arguments of `{call.name}` are not valid JSON: {error}. Nothing was done; "
                "send the call again."
            )
        try:
            return tool.run(self, arguments)
        except FileNotFoundError as error:
            return ToolAnswer(f"No such file: {error.filename or error}", "error")
        except (OutsideWorkspace, FileTooLarge, OSError, UnicodeError) as error:
            return ToolAnswer(str(error), "error")

    def bash(self, arguments: BashArguments) -> ToolAnswer:
        """Run a command line."""
        timeout_s = min(arguments.timeout_s, max(1.0, self._seconds_left()))
        result = self._sandbox.exec(["/bin/bash", "-c", arguments.command], timeout_s=timeout_s)
        return _of_exec(result, timeout_s)

    def view(self, arguments: ViewArguments) -> ToolAnswer:
        """Show lines of a file."""
        lines = self._sandbox.get(arguments.path).decode("utf-8", "replace").split("\n")
        end = arguments.end or arguments.start + VIEW_LINES - 1
        shown = lines[arguments.start - 1 : end]
        numbered = [f"{number:6}\t{line}" for number, line in enumerate(shown, arguments.start)]
        if end < len(lines):
            numbered.append(f"... {len(lines) - end} more lines (say start={end + 1})")
        return ToolAnswer("\n".join(numbered) or "(no such lines)")

    def write(self, arguments: WriteArguments) -> ToolAnswer:
        """Write a file."""
        data = arguments.content.encode("utf-8", "surrogatepass")
        self._sandbox.put(arguments.path, data)
        return ToolAnswer(f"Wrote {len(data)} bytes to {arguments.path}.")

    def edit(self, arguments: EditArguments) -> ToolAnswer:
        """Replace one occurrence."""
        text = self._sandbox.get(arguments.path).decode("utf-8", "surrogateescape")
        try:
            changed = apply_edits(text, [(arguments.old, arguments.new)])
        except EditRefused as refused:
            told = f"{arguments.path} was not changed: {refused}."
            return ToolAnswer(told, "error")
        self._sandbox.put(arguments.path, changed.encode("utf-8", "surrogateescape"))
        return ToolAnswer(f"Edited {arguments.path}.")

    def check(self, _: NoArguments) -> ToolAnswer:
        """Run the public check on the submission as it is now."""
        report = self._bench.check()
        return ToolAnswer(report.text, "ok" if report.passed else "error", report=report)

    def bench(self, _: NoArguments) -> ToolAnswer:
        """Time the public shapes."""
        report = self._bench.bench()
        return ToolAnswer(report.text, "ok" if report.passed else "error", report=report)

    def submit(self, _: NoArguments) -> ToolAnswer:
        """Hand in."""
        try:
            empty = not self._sandbox.get(self._submission_file).strip()
        except FileNotFoundError:
            empty = True
        if empty:
            return ToolAnswer(
                f"There is no {self._submission_file} to hand in. Write it, then submit.", "error"
            )
        return ToolAnswer("Handed in.")


TOOLS: dict[str, _Tool] = {
    tool.name: tool
    for tool in (
        _Tool("bash", BashArguments, BashArguments.__doc__ or "", Toolbox.bash),
        _Tool("view", ViewArguments, ViewArguments.__doc__ or "", Toolbox.view),
        _Tool("write", WriteArguments, WriteArguments.__doc__ or "", Toolbox.write),
        _Tool("edit", EditArguments, EditArguments.__doc__ or "", Toolbox.edit),
        _Tool(
            "check",
            NoArguments,
            "Check the submission against the reference at the public sizes.",
            Toolbox.check,
        ),
        _Tool("bench", NoArguments, "Time the submission at the public sizes.", Toolbox.bench),
        _Tool("submit", NoArguments, "Hand in the files as they are, and finish.", Toolbox.submit),
    )
}


@cache
def tool_specs() -> tuple[ToolSpec, ...]:
    """The tools as offered to a model; the schemas are milliseconds of work, done once."""
    return tuple(
        ToolSpec(tool.name, tool.description, _schema(tool.arguments)) for tool in TOOLS.values()
    )


def _schema(arguments: type[_Arguments]) -> dict[str, Any]:
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    schema.pop("description", None)
    return schema


def _of_exec(result: ExecResult, timeout_s: float) -> ToolAnswer:
    text = result.output.decode("utf-8", "replace")
    if result.timed_out:
        note = f"\n[killed after {timeout_s:g} s with everything it had started]"
        return ToolAnswer(text + note, "timeout")
    if result.exit_code:
        return ToolAnswer(f"{text}\n[exit code {result.exit_code}]", "error", result.exit_code)
    return ToolAnswer(text or "[no output]", "ok", result.exit_code)


def _bad(text: str) -> ToolAnswer:
    return ToolAnswer(text, "bad_call")


def _mistakes(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in mistake['loc']) or 'arguments'}: {mistake['msg']}"
        for mistake in error.errors()
    )
