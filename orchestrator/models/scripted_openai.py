"""Chat completions from the server's side."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from orchestrator.models.foreign_tools import speaks_our_tools
from orchestrator.models.scripted_wire import (
    CHARS_PER_TOKEN,
    Asked,
    data_event,
    fresh_tokens,
    output_tokens,
    pieces,
    signature,
    steps_of,
    user_text,
)
from orchestrator.models.stories import Say


class OpenAIWire:
    """Chat completions."""

    def read(self, request: Mapping[str, Any], size: int) -> Asked:
        """See `Wire.read`."""
        messages = request["messages"]
        answers = [message for message in messages if message["role"] == "assistant"]
        ids = [[call["id"] for call in answer.get("tool_calls") or ()] for answer in answers]
        steps = steps_of(ids)
        tools = tuple(tool["function"] for tool in request.get("tools") or ())
        told_off = 0 if speaks_our_tools(tools, request) else _complaints(messages)
        return Asked(
            user_text=user_text(messages),
            step=steps[-1] + 1 + told_off if steps else 0,
            tools=tools,
            prompt_tokens=size // CHARS_PER_TOKEN,
            fresh_tokens=fresh_tokens(messages),
            carried_reasoning=tuple(
                (step, {key: answer[key] for key in _EXTRAS if key in answer})
                for step, answer in zip(steps, answers, strict=True)
            ),
        )

    def reasoning(self, say: Say, step: int) -> Any:
        """See `Wire.reasoning`."""
        if not say.reasoning:
            return {}
        detail = {
            "type": "reasoning.text",
            "text": say.reasoning,
            "signature": signature(say, step),
            "format": "scripted-v1",
            "index": 0,
        }
        return {"reasoning_content": say.reasoning, "reasoning_details": [detail]}

    def message(self, say: Say, asked: Asked, request: Mapping[str, Any]) -> dict[str, Any]:
        """See `Wire.message`."""
        message: dict[str, Any] = {"role": "assistant", "content": say.text or None}
        message |= self.reasoning(say, asked.step)
        if say.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_s{asked.step}_{number}",
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for number, (name, arguments) in enumerate(say.calls)
            ]
        finish = "tool_calls" if say.calls else "stop"
        return {
            "id": f"chatcmpl-s{asked.step}",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": _usage(say, asked),
        }

    def stream(self, message: Mapping[str, Any]) -> list[bytes]:
        """See `Wire.stream`."""
        frame = {key: message[key] for key in ("id", "created", "model")}
        frame["object"] = "chat.completion.chunk"
        choice = message["choices"][0]
        deltas = [*_deltas(choice["message"])]
        chunks = [{"delta": delta, "finish_reason": None} for delta in deltas]
        chunks.append({"delta": {}, "finish_reason": choice["finish_reason"]})
        events = [data_event({**frame, "choices": [{"index": 0, **chunk}]}) for chunk in chunks]
        usage = data_event({**frame, "choices": [], "usage": message["usage"]})
        return [*events, usage, b"data: [DONE]\n\n"]

    def error(self, status: int, text: str) -> dict[str, Any]:
        """See `Wire.error`."""
        kind = {429: "rate_limit_exceeded", 400: "invalid_request_error"}.get(status)
        return {"error": {"message": text, "type": kind or "server_error", "code": kind}}


_EXTRAS = ("reasoning_content", "reasoning_details")


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for piece in pieces(message.get("reasoning_content") or ""):
        yield {"reasoning_content": piece}
    for detail in message.get("reasoning_details") or ():
        yield {"reasoning_details": [{**detail, "text": detail["text"][:5], "signature": None}]}
        yield {"reasoning_details": [{**detail, "text": detail["text"][5:]}]}
    for piece in pieces(message["content"] or ""):
        yield {"content": piece}
    for index, call in enumerate(message.get("tool_calls") or ()):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        opening = {**call, "index": index, "function": {"name": name, "arguments": ""}}
        yield {"tool_calls": [opening]}
        for piece in pieces(arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _complaints(messages: Sequence[Mapping[str, Any]]) -> int:
    """Malformed answers that a harness has told off and left out of the history."""
    newest = takewhile(lambda message: message["role"] == "user", reversed(messages))
    count = len(list(newest))
    before = messages[: len(messages) - count]
    return count if before and before[-1]["role"] == "tool" else 0


def _usage(say: Say, asked: Asked) -> dict[str, Any]:
    output, thought = output_tokens(say)
    cached = asked.prompt_tokens - asked.fresh_tokens if asked.step else 0
    return {
        "prompt_tokens": asked.prompt_tokens,
        "completion_tokens": output,
        "total_tokens": asked.prompt_tokens + output,
        "prompt_tokens_details": {"cached_tokens": max(0, cached)},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
