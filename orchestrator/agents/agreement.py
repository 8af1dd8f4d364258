"""Whether a harness's own log and the wire tell the same session."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.agents.harnesses.base import NativeLog
from orchestrator.models.wire_answers import reply_of
from transcripts.records import Usage


@dataclass(frozen=True)
class WireCall:
    """One answered model call as it passed."""

    usage: Usage
    tool_calls: int


def wire_call(dialect: str, message: Mapping[str, Any]) -> WireCall:
    """Reads a whole answer of a dialect."""
    reply = reply_of(dialect, json.dumps(message).encode(), 0.0)
    assert reply is not None, "it is whole"
    return WireCall(reply.usage, len(reply.tool_calls))


def disagreements(native: NativeLog, wire: Iterable[WireCall]) -> tuple[str, ...]:
    """A line for each figure that differs; nothing where both agree."""
    calls = list(wire)
    usage = sum((call.usage for call in calls), Usage())
    told = native.usage or Usage()
    pairs = (
        ("tool calls", native.tool_calls, sum(call.tool_calls for call in calls)),
        ("prompt tokens", _prompt(told), _prompt(usage)),
        ("output tokens", told.output_tokens, usage.output_tokens),
    )
    return tuple(
        f"{what}: the harness says {said}, the wire {passed}"
        for what, said, passed in pairs
        if said != passed
    )


def _prompt(usage: Usage) -> int:
    written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    return usage.input_tokens + usage.cache_read_tokens + written
