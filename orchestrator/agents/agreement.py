"""Whether a harness's own log and the wire tell the same session."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.agents.harnesses.base import NativeLog
from orchestrator.models.anthropic_reply import usage_of as anthropic_usage
from orchestrator.models.openai_reply import usage_of as openai_usage
from transcripts.records import Usage


@dataclass(frozen=True)
class WireCall:
    """One answered model call as it passed."""

    usage: Usage
    tool_calls: int


def wire_call(dialect: str, message: Mapping[str, Any]) -> WireCall:
    """Reads a whole answer of a dialect."""
    if dialect == "anthropic":
        blocks = message["content"]
        calls = sum(block["type"] == "tool_use" for block in blocks)
        return WireCall(anthropic_usage(message["usage"]), calls)
    if dialect == "openai":
        answer = message["choices"][0]["message"]
        return WireCall(openai_usage(message["usage"]), len(answer.get("tool_calls") or ()))
    if dialect == "openai-responses":
        calls = sum(item["type"].endswith("_call") for item in message["output"])
        return WireCall(_responses_usage(message["usage"]), calls)
    parts = message["candidates"][0]["content"]["parts"]
    calls = sum("functionCall" in part for part in parts)
    return WireCall(_gemini_usage(message["usageMetadata"]), calls)


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


def _responses_usage(usage: Mapping[str, Any]) -> Usage:
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
    details = usage.get("output_tokens_details") or {}
    return Usage(
        input_tokens=usage["input_tokens"] - cached,
        cache_read_tokens=cached,
        output_tokens=usage["output_tokens"],
        reasoning_tokens=details.get("reasoning_tokens") or 0,
    )


def _gemini_usage(usage: Mapping[str, Any]) -> Usage:
    cached, thoughts = usage.get("cachedContentTokenCount", 0), usage.get("thoughtsTokenCount", 0)
    return Usage(
        input_tokens=usage["promptTokenCount"] - cached,
        cache_read_tokens=cached,
        output_tokens=usage.get("candidatesTokenCount", 0) + thoughts,
        reasoning_tokens=thoughts,
    )
