"""Sessions of the pi coding agent: JSON lines, version 1 (a list) to 3 (a tree by ``parentId``).

The session that the model saw is the path from the root to the last entry of the file; entries off
that path are kept as notes, at their place in the file. Tool semantics of pi: ``write``
makes parent folders and replaces the file; ``edit`` replaces ``oldText``, which must occur exactly
once, and keeps line endings; ``bash`` runs in the session's folder, ``timeout`` is in seconds.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from transcripts.dialects.base import ImportedLog, LogObject, LogProblem, json_lines
from transcripts.dialects.pi_values import (
    all_priced,
    blocks,
    content_text,
    text_or_none,
    time_of,
    tool_call,
    usage_of,
)
from transcripts.events import (
    AnyEvent,
    Compaction,
    Event,
    Note,
    Prompt,
    Reply,
    ToolCall,
    ToolCallStarted,
    ToolResult,
    UserMessage,
)
from transcripts.records import Usage

_STOP_REASONS = {"stop": "stop", "length": "length", "toolUse": "tool_calls", "error": "error"}
_ENTRY_TYPES = {
    "message",
    "model_change",
    "thinking_level_change",
    "compaction",
    "branch_summary",
    "custom",
    "custom_message",
    "label",
    "session_info",
}


class PiDialect:
    """See the module."""

    name = "pi"

    def recognises(self, data: bytes) -> bool:
        """A session header, or where it is broken three entries with pi's ids and parents."""
        entries = 0
        for item in json_lines(data[: 1 << 20]):
            if item.value is None:
                continue
            kind = item.value.get("type")
            if kind == "session" and "cwd" in item.value and "timestamp" in item.value:
                return True
            entries += kind in _ENTRY_TYPES and "parentId" in item.value
            if entries == 3:
                return True
        return False

    def read(self, data: bytes, file_name: str, sha256: str) -> ImportedLog:
        """Read a session."""
        reading = _Reading(list(json_lines(data)))
        reading.run()
        answers = [event for event in reading.events if isinstance(event, Reply)]
        # The header's own time is that of the last copy of the file; entries say when it was.
        times = [time for entry in reading.entries if (time := time_of(entry.get("timestamp")))]
        header = reading.header
        return ImportedLog(
            dialect=self.name,
            file_name=file_name,
            sha256=sha256,
            data=data,
            events=tuple(reading.events),
            session_id=text_or_none(header.get("id")),
            version=text_or_none(header.get("version", 1 if header else None)),
            cwd=text_or_none(header.get("cwd")),
            models=tuple(reading.models),
            thinking_level=reading.thinking_level,
            started_at=min(times, default=None),
            ended_at=max(times, default=None),
            usage=sum((event.usage for event in answers), Usage()),
            cost_usd=sum(e.cost_usd or 0.0 for e in answers) if all_priced(answers) else None,
            steps=len(answers),
            finished=bool(answers) and answers[-1].stop_reason == "stop",
            problems=tuple(reading.problems),
        )


class _Reading:
    """The state of reading one session."""

    def __init__(self, items: list[LogObject]) -> None:
        self.items = items
        self.events: list[Event] = []
        self.problems = [LogProblem(item.line, item.problem) for item in items if item.problem]
        self.models: dict[tuple[str, str], None] = {}
        self.thinking_level: str | None = None
        self.header = next((v for i in items if (v := i.value) and v.get("type") == "session"), {})
        self.entries = [v for i in items if (v := i.value) and v.get("type") != "session"]
        first = next((t for e in self.entries if (t := time_of(e.get("timestamp")))), None)
        self._started = first or time_of(self.header.get("timestamp"))
        self._now = self._started or datetime.fromtimestamp(0, UTC)
        self._step = -1
        self._prompted = False
        self._open: dict[str, ToolCall] = {}
        self._numbers: dict[str, int] = {}  # entry id: number of its first event

    def run(self) -> None:
        """Fill in the events."""
        active = _active_path(self.items)
        for index, item in enumerate(self.items):
            entry = item.value
            before = len(self.events)
            if entry is None:
                self._add(Note, topic="bad_line", text=item.text, raw={"line": item.line})
            elif active is not None and "parentId" in entry and index not in active:
                self._note_entry("other_branch", entry)
            else:
                self._entry(item, entry)
            if entry and isinstance(entry.get("id"), str) and len(self.events) > before:
                self._numbers[entry["id"]] = before
        self._flush_open()

    def _entry(self, item: LogObject, entry: dict[str, Any]) -> None:
        if entry is not self.header:
            self._now = time_of(entry.get("timestamp")) or self._now
        try:
            events = list(self._convert(entry))
        except (ValidationError, TypeError, AttributeError, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0]
            self.problems.append(LogProblem(item.line, f"unexpected form: {reason}"))
            self._note_entry("unexpected_form", entry)
            return
        for event_class, fields in events:
            self._add(event_class, **fields)

    def _convert(self, entry: dict[str, Any]) -> Iterator[tuple[type[AnyEvent], dict[str, Any]]]:
        match entry.get("type"):
            case "message":
                yield from self._message(entry)
            case "compaction":
                kept = self._numbers.get(entry.get("firstKeptEntryId", ""))
                summary = str(entry.get("summary", ""))
                yield Compaction, {"summary": summary, "kept_from": kept, "raw": entry}
            case "model_change":
                self._model(entry.get("provider"), entry.get("modelId"))
                text = f"{entry.get('provider')}/{entry.get('modelId')}"
                yield Note, {"topic": "model_change", "text": text, "raw": entry}
            case "thinking_level_change":
                self.thinking_level = text_or_none(entry.get("thinkingLevel"))
                text = self.thinking_level or ""
                yield Note, {"topic": "thinking_level_change", "text": text, "raw": entry}
            case "custom_message":
                text = content_text(entry.get("content"))
                yield UserMessage, {"text": text, "author": "harness", "raw": entry}
            case kind:
                text = str(entry.get("summary") or entry.get("name") or entry.get("label") or "")
                yield Note, {"topic": str(kind), "text": text, "raw": entry}

    def _message(self, entry: dict[str, Any]) -> Iterator[tuple[type[AnyEvent], dict[str, Any]]]:
        message = entry["message"]
        role = message.get("role")
        if role == "user":
            yield self._user(content_text(message.get("content")), entry)
        elif role == "assistant":
            yield from self._started_calls()
            yield Reply, self._reply(message, entry)
        elif role == "toolResult":
            yield from self._result(message, entry)
        else:
            text = str(message.get("summary") or message.get("command") or "")
            text = text or content_text(message.get("content"))
            yield Note, {"topic": str(role), "text": text, "raw": entry}

    def _user(self, text: str, entry: dict[str, Any]) -> tuple[type[AnyEvent], dict[str, Any]]:
        if self._prompted:
            return UserMessage, {"text": text, "raw": entry}
        self._prompted = True
        return Prompt, {"role": "user", "text": text, "raw": entry}

    def _reply(self, message: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
        parts = blocks(message.get("content"))
        calls = tuple(tool_call(block) for block in parts if block.get("type") == "toolCall")
        thinking = [str(b.get("thinking", "")) for b in parts if b.get("type") == "thinking"]
        self._step += 1
        self._open.update((call.id, call) for call in calls)
        self._model(message.get("provider"), message.get("model"))
        reason = str(message.get("stopReason", ""))
        usage, cost = usage_of(message.get("usage") or {})
        sent = time_of(message.get("timestamp"))
        latency = (self._now - sent).total_seconds() if sent else 0.0
        return {
            "step": self._step,
            "text": content_text(message.get("content")),
            "reasoning": "\n".join(thinking),
            "tool_calls": calls,
            "stop_reason": _STOP_REASONS.get(reason, f"other:{reason}"),
            "usage": usage,
            "cost_usd": cost,
            "served_model": text_or_none(message.get("model")),
            "latency_s": max(0.0, latency),
            "raw": entry,
        }

    def _result(
        self, message: dict[str, Any], entry: dict[str, Any]
    ) -> Iterator[tuple[type[AnyEvent], dict[str, Any]]]:
        call_id = str(message.get("toolCallId", ""))
        call = self._open.pop(call_id, None)
        step = max(self._step, 0)
        if call is not None:
            yield ToolCallStarted, {"step": step, "call": call}
        yield (
            ToolResult,
            {
                "step": step,
                "call_id": call_id,
                "name": str(message.get("toolName", call.name if call else "")),
                "status": "error" if message.get("isError") else "ok",
                "text": content_text(message.get("content")),
                "raw": entry,
            },
        )

    def _started_calls(self) -> Iterator[tuple[type[AnyEvent], dict[str, Any]]]:
        """Calls that the log has no result for: they were started, their effects are unknown."""
        for call in self._open.values():
            yield ToolCallStarted, {"step": max(self._step, 0), "call": call}
        self._open.clear()

    def _flush_open(self) -> None:
        for event_class, fields in self._started_calls():
            self._add(event_class, **fields)

    def _note_entry(self, topic: str, entry: dict[str, Any]) -> None:
        text = str(entry.get("type", ""))
        try:
            self._add(Note, topic=topic, text=text, raw=entry)
        except ValidationError:  # a number beyond what JSON may hold
            self._add(Note, topic=topic, text=json.dumps(entry), raw=None)

    def _model(self, provider: object, model: object) -> None:
        if isinstance(model, str):
            self.models[(str(provider or ""), model)] = None

    def _add(self, event_class: type[AnyEvent], **fields: Any) -> None:
        offset = max(0.0, (self._now - (self._started or self._now)).total_seconds())
        event: Any = event_class(n=len(self.events), at=self._now, offset_s=offset, **fields)
        self.events.append(event)


def _active_path(items: list[LogObject]) -> set[int] | None:
    """Indexes of the entries from the root to the last one; None when there is no tree.

    Where a parent is missing (its line is broken), the entry before it in the file stands in.
    """
    by_id: dict[str, int] = {}
    entries = [i for i, item in enumerate(items) if item.value and "parentId" in item.value]
    if not entries:
        return None
    previous: dict[int, int | None] = {}
    last: int | None = None
    for index in entries:
        entry = items[index].value or {}
        parent = entry.get("parentId")
        previous[index] = by_id.get(parent, last) if parent is not None else None
        by_id[str(entry.get("id"))] = index
        last = index
    path: set[int] = set()
    step: int | None = entries[-1]
    while step is not None and step not in path:
        path.add(step)
        step = previous[step]
    return path
