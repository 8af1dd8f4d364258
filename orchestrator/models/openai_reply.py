"""From chunks of a chat completion to one reply, nothing of the provider's extras lost."""

from collections.abc import Mapping
from typing import Any

from orchestrator.models import failures
from orchestrator.models.base import ModelReply
from orchestrator.models.sse import ServerEvent
from transcripts.events import ToolCall
from transcripts.records import Usage

_STOP_REASONS = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refusal",
}
_REASONING = ("reasoning_content", "reasoning")
"""Where providers put reasoning in words: DeepSeek, GLM, Kimi, Qwen, vLLM; OpenRouter, Ollama."""


class ChatAssembler:
    """Builds the assistant's message of one streamed chat completion."""

    def __init__(self) -> None:
        self.whole = False
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: list[dict[str, Any]] = []
        self._open_call: dict[int, dict[str, Any]] = {}  # by the index of the stream
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}
        self._model: str | None = None

    def feed(self, event: ServerEvent) -> None:
        """Take one event; see `Assembler.feed`."""
        if event.data.startswith("[DONE]"):
            self.whole = True
            return
        chunk = event.json()
        if chunk.get("error"):
            raise failures.in_stream(chunk)
        self._model = chunk.get("model") or self._model
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) == 0:
                self._add(choice.get("delta") or choice.get("message") or {})
                self._finish = choice.get("finish_reason") or self._finish
        self.whole = self.whole or self._finish is not None

    def _add(self, delta: dict[str, Any]) -> None:
        for key, value in delta.items():
            if key == "role" or value is None:
                continue
            if key == "tool_calls":
                for part in value:
                    self._add_call(part)
            elif key == "reasoning_details":
                _add_details(self._message.setdefault(key, []), value)
            else:
                _merge(self._message, key, value)

    def _add_call(self, part: dict[str, Any]) -> None:
        index = part.get("index", len(self._calls) - 1 if not part.get("id") else len(self._calls))
        call = self._open_call.get(index)
        if call is None or (part.get("id") and call.get("id") not in (None, "", part["id"])):
            call = self._open_call[index] = {"function": {"name": "", "arguments": ""}}
            self._calls.append(call)
        for key, value in part.items():
            if key == "function":
                _add_function(call["function"], value)
            elif key != "index" and value is not None:
                call[key] = value  # id, type, and extras such as thought signatures

    def reply(self, latency_s: float) -> ModelReply:
        """The reply, once whole."""
        for number, call in enumerate(self._calls):
            call["id"] = call.get("id") or f"call_{number}"
        if self._calls:
            self._message["tool_calls"] = self._calls
        message = self._message
        return ModelReply(
            text=message.get("content") or message.get("refusal") or "",
            tool_calls=tuple(ToolCall(id=call["id"], **call["function"]) for call in self._calls),
            stop_reason=self._stop_reason(),
            usage=usage_of(self._usage),
            served_model=self._model,
            latency_s=latency_s,
            reasoning=next((message[key] for key in _REASONING if message.get(key)), ""),
            raw=message,
        )

    def _stop_reason(self) -> str:
        if self._message.get("refusal"):
            return "refusal"
        if self._calls and self._finish in (None, "stop"):
            return "tool_calls"  # several servers say "stop" after tool calls
        finish = self._finish or "stop"
        return _STOP_REASONS.get(finish, f"other:{finish}")


def _merge(message: dict[str, Any], key: str, value: Any) -> None:
    known = message.get(key)
    if isinstance(known, str) and isinstance(value, str):
        message[key] = known + value
    elif isinstance(known, list) and isinstance(value, list):
        known.extend(value)
    else:
        message[key] = value


def _add_function(function: dict[str, str], part: Mapping[str, Any]) -> None:
    name, arguments = part.get("name"), part.get("arguments")
    if name and name != function["name"]:  # some servers repeat the name in every chunk
        function["name"] += name
    if arguments:
        function["arguments"] += arguments


def _add_details(details: list[dict[str, Any]], parts: list[dict[str, Any]]) -> None:
    """OpenRouter's reasoning items: pieces of one item share its type and index."""
    for part in parts:
        last = details[-1] if details else None
        if last is not None and _same_item(last, part):
            for key, value in part.items():
                if key in ("text", "summary", "data") and isinstance(last.get(key), str):
                    last[key] += value or ""
                elif value is not None:
                    last[key] = value
        else:
            details.append(dict(part))


def _same_item(last: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    same = all(last.get(key) == part.get(key) for key in ("type", "index"))
    return same and part.get("id") in (None, last.get("id"))


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """Normalised usage. Cached input is counted apart; the providers' spellings differ."""
    prompt = usage.get("prompt_tokens") or 0
    completion = usage.get("completion_tokens") or 0
    details = usage.get("prompt_tokens_details") or {}
    # DeepSeek and Moonshot say it at the top level.
    read = next(
        count
        for count in (
            details.get("cached_tokens"),
            usage.get("prompt_cache_hit_tokens"),
            usage.get("cached_tokens"),
            0,
        )
        if count is not None
    )
    written = details.get("cache_write_tokens") or 0
    # xAI and Gemini leave reasoning out of completion_tokens, though it is billed as output.
    output = max(completion, (usage.get("total_tokens") or 0) - prompt)
    reasoning = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")
    return Usage(
        input_tokens=max(0, prompt - read - written),
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_5m_tokens=written,
        reasoning_tokens=output - completion if reasoning is None else reasoning,
    )
