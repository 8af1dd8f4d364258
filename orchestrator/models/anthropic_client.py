"""Anthropic messages, as Anthropic and several others speak them, through the official SDK.

Thinking blocks, their signatures and redacted ones are carried back exactly as they came.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orchestrator.models import failures
from orchestrator.models.anthropic_reply import MessageAssembler
from orchestrator.models.base import Conversation, ModelReply, ToolSpec, ToolTurn, Turn, UserTurn
from orchestrator.models.http import http_options, timeouts
from orchestrator.models.streaming import (
    NO_CONTENT,
    Assembler,
    CallSettings,
    StreamingClient,
    arguments_object,
    dump,
    safe_name,
)

if TYPE_CHECKING:
    import httpx2

_CACHE_CONTROL = {
    "none": None,
    "5m": {"type": "ephemeral"},
    "1h": {"type": "ephemeral", "ttl": "1h"},
}


class AnthropicClient(StreamingClient):
    """A `ModelClient` that speaks messages. ``params`` must hold ``max_tokens``."""

    def __init__(self, settings: CallSettings, *, base_url: str, api_key: str) -> None:
        import anthropic  # noqa: PLC0415 - start-up time

        http = anthropic.DefaultHttpxClient(**http_options(base_url, settings.stall_s))
        super().__init__(settings, http)
        self._sdk = anthropic.Anthropic(
            api_key=api_key,
            base_url=base_url,
            max_retries=0,
            timeout=timeouts(settings.stall_s),
            http_client=http,
        )
        self._cache_control = _CACHE_CONTROL[settings.cache]
        fixed = {"model": settings.model, "stream": True, **settings.params}
        self._head = dump(fixed)[:-1]  # an open object, to which the rest is added

    def close(self) -> None:
        """Release connections."""
        self._sdk.close()

    @contextmanager
    def _ask_sdk(self, body: bytes, headers: dict[str, str]) -> Iterator["httpx2.Response"]:
        import anthropic  # noqa: PLC0415

        try:
            stream = self._sdk.post(
                "/v1/messages",
                cast_to=object,
                content=body,
                options={"headers": headers},
                stream=True,
                stream_cls=anthropic.Stream[object],
            )
        except anthropic.APIError as error:
            raise failures.from_sdk(error) from error
        with stream:
            yield stream.response

    def _body(self, conversation: Conversation, tools: bytes) -> bytes:
        *past, last = conversation.turns
        messages = self._turns.joined(past)
        system = b""
        if conversation.system:
            block = {"type": "text", "text": conversation.system}
            system = b',"system":' + dump([self._cached(block)])
        offered = b"" if tools == b"[]" else b',"tools":' + tools
        comma = b"," if past else b""
        body = (self._head, system, offered, b',"messages":[', messages, comma, self._last(last))
        return b"".join((*body, b"]}"))

    def _last(self, turn: Turn) -> bytes:
        """The last turn with the cache mark, which moves on with every step."""
        message = _message(turn)
        if message["role"] == "user" and self._cache_control:
            message["content"][-1] = self._cached(message["content"][-1])
        return dump(message)

    def _cached(self, block: dict[str, Any]) -> dict[str, Any]:
        return {**block, "cache_control": self._cache_control} if self._cache_control else block

    def _encode_turn(self, turn: Turn) -> bytes:
        return dump(_message(turn))

    def _tool(self, tool: ToolSpec) -> dict[str, Any]:
        return {
            "name": tool.name,
            "description": tool.description,
            "input_schema": tool.parameters,
        }

    def _assembler(self) -> Assembler:
        return MessageAssembler()


def _message(turn: Turn) -> dict[str, Any]:
    if isinstance(turn, UserTurn):
        return {"role": "user", "content": [_text(turn.text)]}
    if isinstance(turn, ModelReply):
        return {"role": "assistant", "content": _carried_back(turn) or [_text(NO_CONTENT)]}
    return {"role": "user", "content": [_result(*row) for row in _rows(turn)] or [_text("")]}


def _rows(turn: ToolTurn) -> list[tuple[str, str, bool]]:
    return [(result.call_id, result.text, result.is_error) for result in turn.results]


def _result(call_id: str, text: str, is_error: bool) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
    if text:
        block["content"] = text
    if is_error:
        block["is_error"] = True
    return block


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text or NO_CONTENT}  # empty text blocks are refused


def _carried_back(reply: ModelReply) -> list[dict[str, Any]]:
    """The reply's blocks as they came; text without words left out, names and inputs valid."""
    raw = reply.raw.get("content") if isinstance(reply.raw, dict) else None
    if not isinstance(raw, list):
        calls = [_tool_use(call.id, call.name, call.arguments) for call in reply.tool_calls]
        return ([_text(reply.text)] if reply.text.strip() else []) + calls
    by_id = {call.id: call for call in reply.tool_calls}
    blocks = []
    for block in raw:
        if block["type"] == "tool_use" and block["id"] in by_id:
            call = by_id[block["id"]]
            blocks.append({**block, **_tool_use(call.id, call.name, call.arguments)})
        elif block["type"] != "text" or block["text"].strip():
            blocks.append(block)
    return blocks


def _tool_use(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": call_id,
        "name": safe_name(name),
        "input": arguments_object(arguments),
    }
