"""OpenAI responses from the server's side."""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.models.scripted_wire import (
    CHARS_PER_TOKEN,
    Asked,
    named_event,
    output_tokens,
    pieces,
    signature,
    steps_of,
)
from orchestrator.models.stories import Say

_CALLS = ("function_call", "custom_tool_call")


class ResponsesWire:
    """Responses, without a memory on the server: the whole history comes with each request."""

    def read(self, request: Mapping[str, Any], size: int) -> Asked:
        """See `Wire.read`."""
        if request.get("previous_response_id"):
            raise ValueError("previous_response_id: no history is kept here")
        items = _items(request["input"])
        answers = _answers(items)
        steps = steps_of([[item["call_id"] for item in one if _is_call(item)] for one in answers])
        return Asked(
            user_text="\n".join(_text(item) for item in items if item.get("role") == "user"),
            step=steps[-1] + 1 if steps else 0,
            tools=tuple(tool for tool in request.get("tools") or () if "name" in tool),
            prompt_tokens=size // CHARS_PER_TOKEN,
            fresh_tokens=_fresh_tokens(items),
            carried_reasoning=tuple(
                (step, [_essence(item) for item in one if item.get("type") == "reasoning"])
                for step, one in zip(steps, answers, strict=True)
            ),
        )

    def reasoning(self, say: Say, step: int) -> Any:
        """See `Wire.reasoning`."""
        if not say.reasoning:
            return []
        summary = [{"type": "summary_text", "text": say.reasoning}]
        return [{"summary": summary, "encrypted_content": signature(say, step)}]

    def message(self, say: Say, asked: Asked, request: Mapping[str, Any]) -> dict[str, Any]:
        """See `Wire.message`."""
        step = asked.step
        output: list[dict[str, Any]] = [
            {"type": "reasoning", "id": f"rs_s{step}", **item} for item in self.reasoning(say, step)
        ]
        if say.text:
            part = {"type": "output_text", "text": say.text, "annotations": []}
            output.append({"type": "message", "id": f"msg_s{step}", "content": [part]})
            output[-1] |= {"role": "assistant", "status": "completed"}
        kinds = {tool["name"]: tool.get("type") for tool in asked.tools}
        for number, (name, arguments) in enumerate(say.calls):
            output.append(_call(step, number, name, arguments, free=kinds.get(name) == "custom"))
        return {
            "id": f"resp_s{step}",
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "model": request["model"],
            "output": output,
            "usage": _usage(say, asked),
        }

    def stream(self, message: Mapping[str, Any]) -> list[bytes]:
        """See `Wire.stream`."""
        started = {**message, "status": "in_progress", "output": [], "usage": None}
        events: list[dict[str, Any]] = [{"type": "response.created", "response": started}]
        for index, item in enumerate(message["output"]):
            events += [{**event, "output_index": index} for event in _events(item)]
        events.append({"type": "response.completed", "response": dict(message)})
        numbered = ({**event, "sequence_number": n} for n, event in enumerate(events))
        return [named_event(event) for event in numbered]

    def error(self, status: int, text: str) -> dict[str, Any]:
        """See `Wire.error`."""
        kind = {429: "rate_limit_exceeded", 400: "invalid_request_error"}.get(status)
        return {"error": {"message": text, "type": kind or "server_error", "code": kind}}


def _items(value: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": value}] if isinstance(value, str) else list(value)


def _is_call(item: Mapping[str, Any]) -> bool:
    return item.get("type") in _CALLS


def _is_answer(item: Mapping[str, Any]) -> bool:
    return _is_call(item) or item.get("type") == "reasoning" or item.get("role") == "assistant"


def _answers(items: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The items of each answer: what stands together between two things said to the model."""
    answers: list[list[dict[str, Any]]] = []
    inside = False
    for item in items:
        if _is_answer(item):
            if not inside:
                answers.append([])
            answers[-1].append(item)
        inside = _is_answer(item)
    return answers


def _text(item: Mapping[str, Any]) -> str:
    content = item["content"]
    return content if isinstance(content, str) else "\n".join(p.get("text", "") for p in content)


def _essence(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item.get(key) for key in ("summary", "encrypted_content")}


def _fresh_tokens(items: list[dict[str, Any]]) -> int:
    newest = 0
    for item in reversed(items):
        if _is_answer(item):
            break
        newest += len(str(item.get("content", item.get("output", ""))))
    return newest // CHARS_PER_TOKEN


def _call(step: int, number: int, name: str, arguments: str, *, free: bool) -> dict[str, Any]:
    call = {"id": f"fc_s{step}_{number}", "call_id": f"call_s{step}_{number}", "name": name}
    if free:
        return {"type": "custom_tool_call", **call, "input": arguments, "status": "completed"}
    return {"type": "function_call", **call, "arguments": arguments, "status": "completed"}


def _events(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    where = {"item_id": item["id"]}
    yield {"type": "response.output_item.added", "item": {**item, **_EMPTY[item["type"]]}}
    if item["type"] == "message":
        part = item["content"][0]
        at = {**where, "content_index": 0}
        yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
        for piece in pieces(part["text"]):
            yield {"type": "response.output_text.delta", **at, "delta": piece}
        yield {"type": "response.output_text.done", **at, "text": part["text"]}
        yield {"type": "response.content_part.done", **at, "part": part}
    elif item["type"] == "function_call":
        for piece in pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **where, "delta": piece}
        arguments = item["arguments"]
        yield {"type": "response.function_call_arguments.done", **where, "arguments": arguments}
    elif item["type"] == "custom_tool_call":
        for piece in pieces(item["input"]):
            yield {"type": "response.custom_tool_call_input.delta", **where, "delta": piece}
    yield {"type": "response.output_item.done", "item": dict(item)}


_EMPTY: Mapping[str, dict[str, Any]] = {
    "reasoning": {"summary": []},
    "message": {"content": [], "status": "in_progress"},
    "function_call": {"arguments": "", "status": "in_progress"},
    "custom_tool_call": {"input": "", "status": "in_progress"},
}


def _usage(say: Say, asked: Asked) -> dict[str, Any]:
    output, thought = output_tokens(say)
    cached = max(0, asked.prompt_tokens - asked.fresh_tokens) if asked.step else 0
    return {
        "input_tokens": asked.prompt_tokens,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": asked.prompt_tokens + output,
    }
