"""Replaying a transcript without running it: its tool steps, and what their edits made.

Executing the steps in a sandbox is the orchestrator's part; here is what it needs for that, and
what follows from the transcript alone.
"""

import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from transcripts.events import BlobRef, Event, Reply, ToolCall, ToolCallStarted, ToolResult
from transcripts.keys import relative_path
from transcripts.noise import Comparison, compare

__all__ = [
    "Comparison",
    "EditRefused",
    "Rebuilt",
    "ToolStep",
    "apply_edits",
    "compare",
    "edits_of",
    "rebuild_files",
    "relocate",
    "tool_steps",
    "workspace_path",
]


@dataclass(frozen=True)
class ToolStep:
    """One tool call as it was recorded. ``arguments`` is None where they are not a JSON object."""

    n: int  # event number of the call
    step: int
    call_id: str
    name: str
    arguments: dict[str, Any] | None
    arguments_text: str
    result: str | None = None  # None: the session ended before a result
    status: str | None = None
    blob: BlobRef | None = None  # holds the whole result where ``result`` is its head and tail

    @property
    def is_error(self) -> bool:
        """True when the call did not do what it asked for, as far as the record knows."""
        return self.status not in (None, "ok")


def tool_steps(events: Iterable[Event]) -> list[ToolStep]:
    """The tool calls in the order in which they were started, each with its result."""
    steps: list[ToolStep] = []
    open_steps: dict[str, int] = {}
    asked: dict[str, ToolCall] = {}
    for event in events:
        if isinstance(event, Reply):
            asked = {call.id: call for call in event.tool_calls}
        elif isinstance(event, ToolCallStarted):
            open_steps[event.call.id] = len(steps)
            steps.append(_step(event.n, event.step, event.call))
        elif isinstance(event, ToolResult):
            index = open_steps.pop(event.call_id, None)
            if index is None:  # answered without being started: a bad call
                unknown = ToolCall(id=event.call_id, name=event.name, arguments="")
                steps.append(_step(event.n, event.step, asked.get(event.call_id, unknown)))
                index = len(steps) - 1
            steps[index] = replace(
                steps[index], result=event.text, status=event.status, blob=event.blob
            )
    return steps


def _step(n: int, step: int, call: ToolCall) -> ToolStep:
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    return ToolStep(
        n=n,
        step=step,
        call_id=call.id,
        name=call.name,
        arguments=arguments if isinstance(arguments, dict) else None,
        arguments_text=call.arguments,
    )


# --- files ------------------------------------------------------------------------------------


class EditRefused(ValueError):
    """An edit does not apply: its old text is missing or not unique."""


@dataclass
class Rebuilt:
    """The files that `write` and `edit` calls made, from the record alone.

    ``files`` are those of the workspace, by relative path; ``outside`` those elsewhere.
    ``commands`` counts the commands that were run: they may have changed files too, which only
    executing them shows.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    outside: dict[str, bytes] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    commands: int = 0


def rebuild_files(
    steps: Iterable[ToolStep], cwd: str | None = None, start: Mapping[str, bytes] | None = None
) -> Rebuilt:
    """Apply the successful writes and edits to ``start``; paths are relative to ``cwd``."""
    rebuilt = Rebuilt(files=dict(start or {}))
    for step in steps:
        if step.name == "bash":
            rebuilt.commands += 1
        if step.is_error or step.arguments is None or step.name not in ("write", "edit"):
            continue
        try:
            _apply(step, step.arguments, cwd, rebuilt)
        except (EditRefused, KeyError, TypeError, AttributeError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            rebuilt.problems.append(f"event {step.n}: {step.name}: {reason}")
    return rebuilt


def _apply(step: ToolStep, arguments: dict[str, Any], cwd: str | None, rebuilt: Rebuilt) -> None:
    path = workspace_path(arguments["path"], cwd)
    if path == "." or "\0" in path:
        raise EditRefused(f"{arguments['path']!r} names no file")
    is_outside = path.startswith(("/", "~")) or path.split("/")[0] == ".."
    files = rebuilt.outside if is_outside else rebuilt.files
    if not is_outside:
        _check_kept(path)
    if step.name == "write":
        data = _encode(arguments["content"])
    elif path in files:
        text = files[path].decode("utf-8", "surrogateescape")
        data = _encode(apply_edits(text, edits_of(arguments)))
    else:
        raise EditRefused(f"{path!r} was not written before")
    for other in list(files):  # a command between made a file of a folder, or the reverse
        if other.startswith(path + "/") or path.startswith(other + "/"):
            del files[other]
            rebuilt.problems.append(f"event {step.n}: {other!r} gave way to {path!r}")
    files[path] = data


def _check_kept(path: str) -> None:
    try:
        relative_path(path)
    except ValueError as error:
        raise EditRefused(str(error)) from error


def _encode(text: str) -> bytes:
    """The bytes of a file. Bytes that were no UTF-8 in the log come back as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def edits_of(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(old, new) of an edit call: ours, or pi's with one or several replacements.

    Raises:
        KeyError: it is none of these.
    """
    if "edits" in arguments:
        return [(edit["oldText"], edit["newText"]) for edit in arguments["edits"]]
    if "old" in arguments:
        return [(arguments["old"], arguments["new"])]
    return [(arguments["oldText"], arguments["newText"])]


def apply_edits(text: str, edits: Iterable[tuple[str, str]]) -> str:
    """Replace each old text, which must occur exactly once in ``text`` as it was before.

    A byte order mark and CRLF line endings stay as they are, as in pi.

    Raises:
        EditRefused: an old text is missing, not unique, or overlaps another one.
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    has_crlf = "\r\n" in text and text.index("\r\n") <= text.index("\n")
    body = _line_feeds(text[len(mark) :]) if has_crlf else text[len(mark) :]
    places = []
    for old, new in edits:
        wanted = _line_feeds(old) if has_crlf else old
        count = body.count(wanted) if wanted else 0
        if count != 1:
            raise EditRefused(f"the old text occurs {count} times, it must occur exactly once")
        start = body.index(wanted)
        places.append((start, start + len(wanted), _line_feeds(new) if has_crlf else new))
    changed = _replace_places(body, sorted(places))
    return mark + (changed.replace("\n", "\r\n") if has_crlf else changed)


def _replace_places(body: str, places: list[tuple[int, int, str]]) -> str:
    parts, end = [], 0
    for start, stop, new in places:
        if start < end:
            raise EditRefused("two replacements overlap")
        parts += [body[end:start], new]
        end = stop
    return "".join([*parts, body[end:]])


def _line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


# --- places -----------------------------------------------------------------------------------


def workspace_path(path: str, cwd: str | None) -> str:
    """A recorded path relative to the workspace, where it is inside; else as it was."""
    plain = posixpath.normpath(path)
    if cwd:
        root = posixpath.normpath(cwd)
        if plain.startswith(root + "/") and root != ".":
            return plain[len(root) + 1 :]
    return plain


def relocate(command: str, recorded: str | None, actual: str) -> str:
    """The command with the recorded session's folder replaced by the actual one.

    Only whole paths are replaced: ``/home/me/work`` is not found in ``/home/me/workshop``. A
    folder that published logs shortened (``./glm5/backwards``) is found as it was written.
    """
    if not recorded or recorded in (".", "/", "./"):
        return command
    place = re.escape(recorded.rstrip("/"))
    return re.sub(rf"(?<![\w./~-]){place}(?![\w.-])", lambda _: actual, command)
