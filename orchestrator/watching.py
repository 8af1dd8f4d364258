"""`replay` without `--execute`: the events of a session in words, with diffs of files."""

import difflib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sandboxes.base import WORKSPACE
from transcripts.events import (
    BenchRun,
    CheckRun,
    Compaction,
    Event,
    Fault,
    Note,
    Prompt,
    Reply,
    Request,
    Retry,
    SessionEnd,
    SessionStart,
    Submission,
    ToolCall,
    ToolCallStarted,
    ToolResult,
    UserMessage,
)
from transcripts.replay import EditRefused, apply_edits, edits_of

_SHOWN_LINES = 40
"""Lines of a result or a diff that are shown; `--whole` shows all."""


_PATHS, _OLD = ("path", "file_path", "filePath"), ("old", "edits", "oldText")
"""Arguments by which our own and foreign tools name a file, and by which an edit is told."""


@dataclass(frozen=True)
class Shown:
    """One event for the eye. ``style`` is a rich style of the title."""

    n: int
    title: str
    body: str
    style: str
    seconds: float  # since the session began, all its processes together
    is_tool: bool = False


def shown(events: Iterable[Event], *, whole: bool = False) -> Iterator[Shown]:
    """The events that say something to a reader, in order."""
    view = _View(whole)
    for event in events:
        yield from view.take(event)


class _View:
    def __init__(self, whole: bool) -> None:
        self._whole = whole
        self._files: dict[str, str] = {}
        self._before = 0.0
        self._offset = 0.0

    def take(self, event: Event) -> Iterator[Shown]:
        if event.offset_s < self._offset:
            self._before += self._offset
        self._offset = event.offset_s
        described = self._describe(event)
        if described is not None:
            title, body, style = described
            is_tool = isinstance(event, ToolCallStarted | ToolResult)
            seconds = self._before + self._offset
            yield Shown(event.n, title, self._cut(body), style, seconds, is_tool)

    def _describe(self, event: Event) -> tuple[str, str, str] | None:  # noqa: C901, PLR0911, PLR0912 - a table of the event kinds
        match event:
            case SessionStart():
                return ("session resumed" if event.resumed else "session starts", "", "bold")
            case Prompt():
                return f"{event.role} prompt", event.text, "cyan"
            case Request():
                return None  # the reply says it all
            case Reply():
                return self._reply(event)
            case ToolCallStarted():
                return f"call {event.call.name}", self._call(event.call), "yellow"
            case ToolResult():
                code = f", exit {event.exit_code}" if event.exit_code is not None else ""
                title = f"result of {event.name}: {event.status}{code}, {event.duration_s:.2f} s"
                return title, event.text, "green" if event.status == "ok" else "red"
            case CheckRun():
                return f"check: {event.result}", "", "green" if event.passed else "red"
            case BenchRun():
                times = ", ".join(f"{name} {ms:.4g} ms" for name, ms in event.median_ms.items())
                return "bench", times, "green"
            case Retry():
                title = f"retry {event.try_number} after {event.error}, waits {event.wait_s:.1f} s"
                return title, event.message, "magenta"
            case Compaction():
                how = f": {event.method}, {event.kept_turns} turns kept" if event.method else ""
                return f"context shortened{how}", event.summary, "magenta"
            case Note():
                return f"note: {event.topic}", event.text, "magenta"
            case Fault():
                return f"fault: {event.fault}", event.message, "red"
            case UserMessage():
                return f"{event.author} says", event.text, "cyan"
            case Submission():
                files = "\n".join(f"{f.path}  {f.size_bytes} bytes" for f in event.files)
                return "handed in" if event.explicit else "last state taken", files, "bold"
            case SessionEnd():
                return f"session ends: {event.outcome.end}", event.outcome.message, "bold"
            case _:
                return event.kind, "", "dim"

    def _reply(self, event: Reply) -> tuple[str, str, str]:
        usage = event.usage
        title = (
            f"{event.purpose} {event.step}: {event.stop_reason}, {usage.input_tokens} in, "
            f"{usage.output_tokens} out, {event.latency_s:.2f} s"
        )
        thought = f"[thinks] {event.reasoning}\n" if event.reasoning else ""
        return title, thought + event.text, "blue"

    def _call(self, call: ToolCall) -> str:
        """A command as it is, a write or an edit as the diff that it makes."""
        try:
            arguments = json.loads(call.arguments or "{}")
            path = next((arguments[key] for key in _PATHS if key in arguments), None)
            if "command" in arguments or "cmd" in arguments:
                return f"$ {_command(arguments.get('command', arguments.get('cmd')))}"
            if path is not None and "content" in arguments:
                return self._diff(path, arguments["content"])
            if path is not None and any(key in arguments for key in _OLD):
                changed = apply_edits(self._files.get(path, ""), edits_of(arguments))
                return self._diff(path, changed)
        except (ValueError, KeyError, TypeError, EditRefused):
            return call.arguments
        return call.arguments if arguments else ""

    def _diff(self, path: str, text: str) -> str:
        before = self._files.get(path, "")
        self._files[path] = text
        shown = path.removeprefix(f"{WORKSPACE}/")
        lines = difflib.unified_diff(
            before.splitlines(), text.splitlines(), f"a/{shown}", f"b/{shown}", lineterm=""
        )
        return "\n".join(lines)

    def _cut(self, text: str) -> str:
        lines = text.rstrip("\n").split("\n")
        if self._whole or len(lines) <= _SHOWN_LINES:
            return "\n".join(lines)
        half = _SHOWN_LINES // 2
        gap = f"... {len(lines) - 2 * half} more lines ..."
        return "\n".join([*lines[:half], gap, *lines[-half:]])


def _command(said: str | list[str]) -> str:
    """A command line, also one that came as the words of `bash -lc`."""
    return said if isinstance(said, str) else said[-1]
