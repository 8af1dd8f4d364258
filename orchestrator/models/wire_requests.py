"""What a request of any dialect adds to its conversation since the model's last answer."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

_SYSTEM = ("system", "developer")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


@dataclass(frozen=True)
class WireResult:
    """What the model is told of one of its calls."""

    call_id: str
    name: str  # empty where the dialect does not repeat it
    text: str
    is_error: bool = False


@dataclass(frozen=True)
class Newest:
    """The end of a request, and what frames it."""

    system: str
    messages: int
    offers_tools: bool
    results: tuple[WireResult, ...]
    texts: tuple[str, ...]  # of the user, or of the harness in his name


def newest_of(dialect: str, body: bytes) -> Newest | None:
    """Read a request; None where it is not one of the dialect."""
    try:
        request = json.loads(body)
        return _READERS[dialect](request)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return None


def _newest(
    request: Json, system: Iterable[str], items: list[Json], is_answer: Callable[[Json], bool]
) -> tuple[Newest, list[Json]]:
    """The frame, and the items after the last answer."""
    last = max((n for n, item in enumerate(items) if is_answer(item)), default=-1)
    frame = Newest(
        system="\n".join(text for text in system if text),
        messages=len(items),
        offers_tools=bool(request.get("tools")),
        results=(),
        texts=(),
    )
    return frame, items[last + 1 :]


def _with(frame: Newest, results: Iterable[WireResult], texts: Iterable[str]) -> Newest:
    said = tuple(text for text in texts if text)
    return Newest(
        frame.system,
        frame.messages,
        frame.offers_tools,
        tuple(results),
        said,
    )


def _chat(request: Json) -> Newest:
    messages = request["messages"]
    system = [_text(m["content"]) for m in messages if m["role"] in _SYSTEM]
    frame, newest = _newest(request, system, messages, lambda m: m["role"] == "assistant")
    results = [
        WireResult(m["tool_call_id"], m.get("name") or "", _text(m["content"]))
        for m in newest
        if m["role"] == "tool"
    ]
    return _with(frame, results, [_text(m["content"]) for m in newest if m["role"] == "user"])


def _messages(request: Json) -> Newest:
    messages, system = request["messages"], [_text(request.get("system") or "")]
    frame, newest = _newest(request, system, messages, lambda m: m["role"] == "assistant")
    blocks = [block for message in newest for block in _blocks(message["content"])]
    results = [
        WireResult(b["tool_use_id"], "", _text(b.get("content") or ""), bool(b.get("is_error")))
        for b in blocks
        if b["type"] == "tool_result"
    ]
    return _with(frame, results, [b["text"] for b in blocks if b["type"] == "text"])


def _responses(request: Json) -> Newest:
    given = request["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    told = [_text(item["content"]) for item in items if item.get("role") in _SYSTEM]
    system = [request.get("instructions") or "", *told]
    frame, newest = _newest(request, system, items, _is_answer)
    results = [
        WireResult(item["call_id"], item.get("name") or "", _text(item["output"]))
        for item in newest
        if item.get("type") in _OUTPUTS
    ]
    return _with(frame, results, [_text(i["content"]) for i in newest if i.get("role") == "user"])


def _is_answer(item: Json) -> bool:
    kind = str(item.get("type") or "")
    return item.get("role") == "assistant" or kind == "reasoning" or kind.endswith("_call")


def _gemini(request: Json) -> Newest:
    contents = request["contents"]
    instruction = request.get("systemInstruction") or request.get("system_instruction") or {}
    system = [part.get("text") or "" for part in instruction.get("parts") or ()]
    frame, newest = _newest(request, system, contents, lambda c: c.get("role") == "model")
    parts = [part for content in newest for part in content["parts"]]
    answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
    results = [
        WireResult(
            answer.get("id") or f"call_{n}",
            answer["name"],
            _output(answer.get("response")),
            "error" in (answer.get("response") or {}),
        )
        for n, answer in enumerate(answers)
    ]
    return _with(frame, results, [part.get("text") or "" for part in parts])


def _output(response: Any) -> str:
    """A function's answer: the one string in it, or its JSON."""
    if isinstance(response, dict) and len(response) == 1:
        (value,) = response.values()
        if isinstance(value, str):
            return value
    return json.dumps(response, ensure_ascii=False)


def _text(content: Any) -> str:
    """The text of a message's content; what is no text is named."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(
        block["text"] if "text" in block else f"[{block.get('type', 'content')}]"
        for block in content
    )


def _blocks(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


_READERS: Mapping[str, Callable[[Json], Newest]] = {
    "openai": _chat,
    "openai-responses": _responses,
    "anthropic": _messages,
    "gemini": _gemini,
}
