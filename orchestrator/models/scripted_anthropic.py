"""Anthropic messages from the server's side."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.models.scripted_wire import (
    CHARS_PER_TOKEN,
    Asked,
    blocks,
    fresh_tokens,
    named_event,
    output_tokens,
    pieces,
    signature,
    steps_of,
    user_text,
)
from orchestrator.models.stories import Say


class AnthropicWire:
    """Messages."""

    def read(self, request: Mapping[str, Any], size: int) -> Asked:
        """See `Wire.read`."""
        messages = request["messages"]
        answers = [blocks(message) for message in messages if message["role"] == "assistant"]
        ids = [_call_ids(answer) for answer in answers]
        steps = steps_of(ids)
        tools = [
            {"name": tool["name"], "parameters": tool.get("input_schema", {})}
            for tool in request.get("tools") or ()
        ]
        return Asked(
            user_text=user_text(messages),
            step=steps[-1] + 1 if steps else 0,
            tools=tuple(tools),
            prompt_tokens=size // CHARS_PER_TOKEN,
            fresh_tokens=fresh_tokens(messages),
            carried_reasoning=tuple(
                (step, [block for block in answer if "thinking" in block["type"]])
                for step, answer in zip(steps, answers, strict=True)
            ),
        )

    def reasoning(self, say: Say, step: int) -> Any:
        """See `Wire.reasoning`."""
        if not say.reasoning:
            return []
        signed = signature(say, step)
        thinking = {"type": "thinking", "thinking": say.reasoning, "signature": signed}
        redacted = {"type": "redacted_thinking", "data": signed[::-1]}
        return [thinking, redacted] if step == 0 else [thinking]

    def message(self, say: Say, asked: Asked, request: Mapping[str, Any]) -> dict[str, Any]:
        """See `Wire.message`."""
        content = list(self.reasoning(say, asked.step))
        if say.text:
            content.append({"type": "text", "text": say.text})
        for number, (name, arguments) in enumerate(say.calls):
            call_id = f"toolu_s{asked.step}_{number}"
            content.append({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
        return {
            "id": f"msg_s{asked.step}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": content,
            "stop_reason": "tool_use" if say.calls else "end_turn",
            "stop_sequence": None,
            "usage": _usage(say, asked, json.dumps(request.get("system", ""))),
        }

    def stream(self, message: Mapping[str, Any]) -> list[bytes]:
        """See `Wire.stream`."""
        usage = message["usage"]
        start = {
            **message,
            "content": [],
            "stop_reason": None,
            "usage": {**usage, "output_tokens": 1},
        }
        events = [
            named_event({"type": "message_start", "message": start}),
            named_event({"type": "ping"}),
        ]
        for index, block in enumerate(message["content"]):
            events += [named_event({**event, "index": index}) for event in _events(block)]
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        counted = {"output_tokens": usage["output_tokens"]}
        events.append(named_event({"type": "message_delta", "delta": delta, "usage": counted}))
        return [*events, named_event({"type": "message_stop"})]

    def error(self, status: int, text: str) -> dict[str, Any]:
        """See `Wire.error`."""
        kinds = {400: "invalid_request_error", 404: "not_found_error"}
        kinds |= {429: "rate_limit_error", 529: "overloaded_error"}
        return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": text}}


def _call_ids(answer: list[dict[str, Any]]) -> list[str]:
    return [block["id"] for block in answer if block["type"] == "tool_use"]


def _events(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    opening, deltas = dict(block), []
    if block["type"] == "text":
        opening["text"] = ""
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    elif block["type"] == "thinking":
        opening |= {"thinking": "", "signature": ""}
        deltas = [
            {"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])
        ]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif block["type"] == "tool_use":
        opening["input"] = {}
        deltas = [
            {"type": "input_json_delta", "partial_json": piece} for piece in pieces(block["input"])
        ]
    yield {"type": "content_block_start", "content_block": opening}
    for delta in deltas:
        yield {"type": "content_block_delta", "delta": delta}
    yield {"type": "content_block_stop"}


def _usage(say: Say, asked: Asked, system: str) -> dict[str, Any]:
    output, thought = output_tokens(say)
    marked = '"cache_control"' in system
    written = asked.fresh_tokens if marked else 0
    read = max(0, asked.prompt_tokens - written) if marked and asked.step else 0
    one_hour = written if '"ttl": "1h"' in system else 0
    return {
        "input_tokens": max(0, asked.prompt_tokens - read - written),
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "cache_creation": {
            "ephemeral_5m_input_tokens": written - one_hour,
            "ephemeral_1h_input_tokens": one_hour,
        },
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": thought},
    }
