"""From the events of an Anthropic message to one reply, every block kept in its order."""

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.models import failures
from orchestrator.models.base import ModelReply
from orchestrator.models.sse import ServerEvent
from transcripts.events import ToolCall
from transcripts.records import Usage

_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_GROWING = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
}
"""Delta type -> (field of the delta, field of the block that it adds to)."""


class MessageAssembler:
    """Builds the content blocks of one streamed message."""

    def __init__(self) -> None:
        self.whole = False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}  # JSON text of tool inputs, as it came
        self._stop: str | None = None
        self._usage: dict[str, Any] = {}
        self._model: str | None = None

    def feed(self, event: ServerEvent) -> None:
        """Take one event; see `Assembler.feed`."""
        data = event.json()
        match data["type"]:
            case "message_start":
                self._model = data["message"].get("model")
                self._usage = dict(data["message"].get("usage") or {})
            case "content_block_start":
                self._blocks[data["index"]] = dict(data["content_block"])
            case "content_block_delta":
                self._grow(data["index"], data["delta"])
            case "message_delta":
                self._stop = data["delta"].get("stop_reason") or self._stop
                for key, value in (data.get("usage") or {}).items():
                    if value is not None:
                        self._usage[key] = value
                # All blocks are closed and usage is known: what may be lost now says nothing more.
                self.whole = self.whole or self._stop is not None
            case "message_stop":
                self.whole = True
            case "error":
                raise failures.in_stream(data)
            case _:
                pass  # the protocol promises new event types that clients must skip

    def _grow(self, index: int, delta: Mapping[str, Any]) -> None:
        kind = delta["type"]
        block = self._blocks[index]
        if kind in _GROWING:
            source, target = _GROWING[kind]
            block[target] = (block.get(target) or "") + delta[source]
        elif kind == "input_json_delta":
            self._inputs[index] = self._inputs.get(index, "") + delta["partial_json"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]

    def reply(self, latency_s: float) -> ModelReply:
        """The reply, once whole."""
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        calls = self._calls()
        return ModelReply(
            text="".join(block["text"] for block in blocks if block["type"] == "text"),
            tool_calls=calls,
            stop_reason=self._stop_reason(bool(calls)),
            usage=usage_of(self._usage),
            served_model=self._model,
            latency_s=latency_s,
            reasoning="\n".join(
                block["thinking"] for block in blocks if block["type"] == "thinking"
            ),
            raw={"role": "assistant", "content": blocks},
        )

    def _calls(self) -> tuple[ToolCall, ...]:
        calls = []
        for index, block in sorted(self._blocks.items()):
            if block["type"] == "tool_use":
                arguments = self._inputs.get(index) or json.dumps(block.get("input") or {})
                calls.append(ToolCall(id=block["id"], name=block["name"], arguments=arguments))
                block["input"] = _object_or_text(arguments)
        return tuple(calls)

    def _stop_reason(self, called: bool) -> str:
        stop = self._stop or ("tool_use" if called else "end_turn")
        return _STOP_REASONS.get(stop, f"other:{stop}")


def _object_or_text(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments  # kept as the model wrote it; the client makes it valid when it goes back


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """Normalised usage; ``input_tokens`` is without cached input in this protocol too."""
    written = usage.get("cache_creation") or {}
    written_1h = written.get("ephemeral_1h_input_tokens") or 0
    all_written = usage.get("cache_creation_input_tokens") or 0
    details = usage.get("output_tokens_details") or {}
    return Usage(
        input_tokens=usage.get("input_tokens") or 0,
        output_tokens=usage.get("output_tokens") or 0,
        cache_read_tokens=usage.get("cache_read_input_tokens") or 0,
        cache_write_5m_tokens=written.get("ephemeral_5m_input_tokens")
        or max(0, all_written - written_1h),
        cache_write_1h_tokens=written_1h,
        reasoning_tokens=details.get("thinking_tokens") or 0,
    )
