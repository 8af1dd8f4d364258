"""A whole answer as it passed over the wire, of any dialect, read into one reply.

Our own clients assemble streams as they come (`openai_client`, `anthropic_client`); here the bytes
of an answer that somebody else asked for are all there.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.models import anthropic_reply, openai_reply
from orchestrator.models.anthropic_reply import MessageAssembler
from orchestrator.models.base import ModelReply
from orchestrator.models.errors import ModelError
from orchestrator.models.openai_reply import ChatAssembler
from orchestrator.models.sse import ServerEvent, decoded
from transcripts.events import ToolCall
from transcripts.records import Usage

_UNREADABLE = (ModelError, ValueError, KeyError, TypeError, AttributeError, IndexError)
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")


def reply_of(dialect: str, body: bytes, latency_s: float) -> ModelReply | None:
    """The reply that ``body`` holds, streamed or not; None where it is no whole answer."""
    try:
        events = list(_events(body))
        if dialect == "anthropic":
            return _assembled(MessageAssembler(), _as_stream(events), latency_s)
        if dialect == "openai":
            return _assembled(ChatAssembler(), events, latency_s)
        values = [event.json() for event in events if event.data != "[DONE]"]
        read = _responses if dialect == "openai-responses" else _gemini
        return read(values, latency_s)
    except _UNREADABLE:
        return None


def _events(body: bytes) -> Iterator[ServerEvent]:
    """The events of a stream; a plain JSON document is one event, an array one for each."""
    text = body.lstrip()
    if not text.startswith((b"{", b"[")):
        yield from (event for event in decoded([body]) if event is not None)
        return
    value = json.loads(text)
    for part in value if isinstance(value, list) else [value]:
        yield ServerEvent(None, json.dumps(part))


def _assembled(
    assembler: ChatAssembler | MessageAssembler, events: list[ServerEvent], latency_s: float
) -> ModelReply | None:
    for event in events:
        assembler.feed(event)
    return assembler.reply(latency_s) if assembler.whole else None


def _as_stream(events: list[ServerEvent]) -> list[ServerEvent]:
    """An unstreamed message as the events that would have carried it."""
    if len(events) != 1 or events[0].json().get("type") != "message":
        return events
    message = events[0].json()
    parts: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(message["content"]):
        parts.append({"type": "content_block_start", "index": index, "content_block": block})
    parts.append({"type": "message_delta", "delta": {"stop_reason": message.get("stop_reason")}})
    parts.append({"type": "message_stop"})
    return [ServerEvent(None, json.dumps(part)) for part in parts]


# --- responses --------------------------------------------------------------------------------


def _responses(values: list[dict[str, Any]], latency_s: float) -> ModelReply | None:
    """The last event holds it all; servers that leave out its items have sent them before."""
    last = values[-1].get("response") or values[-1]
    if last.get("status") not in ("completed", "incomplete"):
        return None
    done = [value["item"] for value in values if value.get("type") == "response.output_item.done"]
    output = last.get("output") or done
    calls = tuple(map(_call, (item for item in output if item.get("type") in _CALLS)))
    reasons = [part["text"] for item in output for part in item.get("summary") or ()]
    said = [part for item in output if item.get("type") == "message" for part in item["content"]]
    refused = any(part.get("type") == "refusal" for part in said)
    stop = "refusal" if refused else "tool_calls" if calls else "stop"
    if last["status"] == "incomplete":
        stop = "length"
    return ModelReply(
        text="".join(part.get("text") or part.get("refusal") or "" for part in said),
        tool_calls=calls,
        stop_reason=stop,
        usage=responses_usage(last.get("usage") or {}),
        served_model=last.get("model"),
        latency_s=latency_s,
        reasoning="\n".join(reasons),
        raw={"output": output},
    )


def _call(item: Mapping[str, Any]) -> ToolCall:
    arguments = item.get("arguments", item.get("input"))
    if arguments is None:
        arguments = json.dumps(item.get("action") or {})
    return ToolCall(id=item["call_id"], name=item.get("name") or item["type"], arguments=arguments)


def responses_usage(usage: Mapping[str, Any]) -> Usage:
    """Normalised usage of a response."""
    read = (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
    thought = (usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
    return Usage(
        input_tokens=max(0, (usage.get("input_tokens") or 0) - read),
        output_tokens=usage.get("output_tokens") or 0,
        cache_read_tokens=read,
        reasoning_tokens=thought,
    )


# --- Gemini -----------------------------------------------------------------------------------

_GEMINI_STOPS = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "refusal"}


def _gemini(values: list[dict[str, Any]], latency_s: float) -> ModelReply | None:
    """Parts in their order; a call without an id gets the one of its place."""
    finish, model, usage = "", None, dict[str, Any]()
    parts: list[dict[str, Any]] = []
    for value in values:
        usage, model = value.get("usageMetadata") or usage, value.get("modelVersion") or model
        for candidate in (value.get("candidates") or ())[:1]:
            parts += (candidate.get("content") or {}).get("parts") or ()
            finish = candidate.get("finishReason") or finish
    if not finish:
        return None
    asked = [part["functionCall"] for part in parts if "functionCall" in part]
    calls = tuple(
        ToolCall(
            id=one.get("id") or f"call_{n}", name=one["name"], arguments=json.dumps(one.get("args"))
        )
        for n, one in enumerate(asked)
    )
    texts = [part for part in parts if part.get("text")]
    return ModelReply(
        text="".join(part["text"] for part in texts if not part.get("thought")),
        tool_calls=calls,
        stop_reason="tool_calls" if calls else _GEMINI_STOPS.get(finish, f"other:{finish}"),
        usage=gemini_usage(usage),
        served_model=model,
        latency_s=latency_s,
        reasoning="".join(part["text"] for part in texts if part.get("thought")),
        raw={"role": "model", "parts": parts},
    )


def gemini_usage(usage: Mapping[str, Any]) -> Usage:
    """Normalised usage of generateContent; thoughts are billed as output."""
    read, thought = usage.get("cachedContentTokenCount") or 0, usage.get("thoughtsTokenCount") or 0
    prompt = (usage.get("promptTokenCount") or 0) + (usage.get("toolUsePromptTokenCount") or 0)
    return Usage(
        input_tokens=max(0, prompt - read),
        output_tokens=(usage.get("candidatesTokenCount") or 0) + thought,
        cache_read_tokens=read,
        reasoning_tokens=thought,
    )


USAGE_OF = {
    "openai": openai_reply.usage_of,
    "openai-responses": responses_usage,
    "anthropic": anthropic_reply.usage_of,
    "gemini": gemini_usage,
}
"""Dialect -> how its usage is normalised."""
