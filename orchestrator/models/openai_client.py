"""OpenAI chat completions, as OpenAI and many others speak them, through the official SDK.

The request's bytes go through the SDK's own ``post`` (see `StreamingClient`); its typed resource
would walk the whole history at every step.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orchestrator.models import failures
from orchestrator.models.base import Conversation, ModelReply, ToolSpec, ToolTurn, Turn, UserTurn
from orchestrator.models.http import http_options, timeouts
from orchestrator.models.openai_reply import ChatAssembler
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


class OpenAIClient(StreamingClient):
    """A `ModelClient` that speaks chat completions."""

    def __init__(self, settings: CallSettings, *, base_url: str, api_key: str) -> None:
        import openai  # noqa: PLC0415 - start-up time

        http = openai.DefaultHttpxClient(**http_options(base_url, settings.stall_s))
        super().__init__(settings, http)
        self._sdk = openai.OpenAI(
            api_key=api_key,
            base_url=base_url,
            max_retries=0,
            timeout=timeouts(settings.stall_s),
            http_client=http,
        )
        fixed = {"model": settings.model, "stream": True, **settings.params}
        self._head = dump(fixed)[:-1]  # an open object, to which messages and tools are added

    def close(self) -> None:
        """Release connections."""
        self._sdk.close()

    @contextmanager
    def _ask_sdk(self, body: bytes, headers: dict[str, str]) -> Iterator["httpx2.Response"]:
        import openai  # noqa: PLC0415

        try:
            stream = self._sdk.post(
                "/chat/completions",
                cast_to=object,
                content=body,
                options={"headers": headers},
                stream=True,
                stream_cls=openai.Stream[object],
            )
        except openai.APIError as error:
            raise failures.from_sdk(error) from error
        with stream:
            yield stream.response

    def _body(self, conversation: Conversation, tools: bytes) -> bytes:
        system = b""
        if conversation.system:
            system = dump({"role": "system", "content": conversation.system}) + b","
        messages = self._turns.joined(conversation.turns)
        offered = b"" if tools == b"[]" else b',"tools":' + tools
        return b"".join((self._head, offered, b',"messages":[', system, messages, b"]}"))

    def _encode_turn(self, turn: Turn) -> bytes:
        if isinstance(turn, UserTurn):
            return dump({"role": "user", "content": turn.text})
        if isinstance(turn, ToolTurn):
            return b",".join(
                dump({"role": "tool", "tool_call_id": result.call_id, "content": result.text})
                for result in turn.results
            )
        return dump(_carried_back(turn))

    def _tool(self, tool: ToolSpec) -> dict[str, Any]:
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        return {"type": "function", "function": function}

    def _assembler(self) -> Assembler:
        return ChatAssembler()


def _carried_back(reply: ModelReply) -> dict[str, Any]:
    """The assistant's message: as the provider sent it, extras and all, made valid for history."""
    raw = reply.raw if isinstance(reply.raw, dict) else {}
    if isinstance(raw.get("content"), list):  # of another protocol: the normalised form will do
        raw = {}
    message = {"role": "assistant", "content": reply.text or None, **raw}
    if reply.tool_calls:
        known = {call.get("id"): call for call in raw.get("tool_calls", ())}
        message["tool_calls"] = [
            {
                **known.get(call.id, {}),
                "id": call.id,
                "type": "function",
                "function": {
                    "name": safe_name(call.name),
                    "arguments": _valid(call.arguments),
                },
            }
            for call in reply.tool_calls
        ]
    elif not message["content"]:
        message["content"] = NO_CONTENT
    return message


def _valid(arguments: str) -> str:
    """Servers that render arguments through a template fail on invalid JSON in a history."""
    value = arguments_object(arguments)
    broken = value.keys() <= {"invalid_json", "not_an_object"} and len(value) == 1
    return dump(value).decode() if broken or not arguments else arguments
