"""What both protocols share: turns encoded once, one try of a streamed call, retries around it.

The history is never copied and never encoded twice: its JSON bytes grow with it, and a request is
those bytes between a head and a tail. What a later step costs more is the sending.

The SDK makes the first request of a session: address, keys, headers. The later ones differ in their
body and their idempotency key alone, so they are that request again, sent by the SDK's own HTTP
client; making each one anew costs as much CPU as all the rest of a step.
"""

import json
import re
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, cast

from orchestrator.models import failures
from orchestrator.models.base import Conversation, ModelReply, RetryNotice, ToolSpec, Turn
from orchestrator.models.errors import DroppedStream, MalformedReply, ModelError, Unreachable
from orchestrator.models.retry import RetryPolicy
from orchestrator.models.sse import ServerEvent, events

if TYPE_CHECKING:
    import httpx2

_KEY = "Idempotency-Key"
_OWN = frozenset({_KEY.lower().encode(), b"content-length"})
"""Headers that each request has of its own."""

NO_CONTENT = "(no content)"
"""Stands for an empty reply in the history: providers refuse messages without content."""


@dataclass(frozen=True)
class CallSettings:
    """What every request of one client has in common."""

    model: str
    params: dict[str, Any]  # request fields of the roster: reasoning options, sampling, pins
    stall_s: float
    cache: str = "none"  # Anthropic prompt caching: "none", "5m", "1h"
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    stopping: Event | None = None


class Assembler(Protocol):
    """Builds one reply from the events of a stream."""

    whole: bool  # True once the terminator was seen

    def feed(self, event: ServerEvent) -> None:
        """Take one event. Raises MalformedReply or the error that the provider sent."""
        ...

    def reply(self, latency_s: float) -> ModelReply:
        """The reply, once whole."""
        ...


class StreamingClient(ABC):
    """A `ModelClient`; subclasses know one protocol. ``http`` is the client that the SDK uses."""

    def __init__(self, settings: CallSettings, http: "httpx2.Client") -> None:
        self._settings = settings
        self._http = http
        self._first: tuple[httpx2.URL, list[tuple[bytes, bytes]]] | None = None
        self._turns = EncodedTurns(self._encode_turn)
        self._tools: tuple[Sequence[ToolSpec], bytes] | None = None

    def reply(
        self,
        conversation: Conversation,
        tools: Sequence[ToolSpec],
        on_retry: Callable[[RetryNotice], None],
    ) -> ModelReply:
        """Ask once, with retries by policy; see `ModelClient.reply`."""
        body = self._body(conversation, self._encoded_tools(tools))
        # The same for every try of this question: a provider that honours it never bills twice.
        key = uuid.uuid4().hex
        settings = self._settings
        return settings.policy.ask(lambda: self._once(body, key), on_retry, settings.stopping)

    def _once(self, body: bytes, key: str) -> ModelReply:
        started = time.monotonic()
        assembler = self._assembler()
        with self._open(body, key) as response:
            _read(response, assembler, self._settings.stall_s)
        try:
            return assembler.reply(time.monotonic() - started)
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            raise MalformedReply(f"an answer of unexpected form: {error}") from error

    @contextmanager
    def _open(self, body: bytes, key: str) -> Iterator["httpx2.Response"]:
        if self._first is not None:
            with self._again(*self._first, body, key) as response:
                yield response
            return
        with self._ask_sdk(body, {_KEY: key}) as response:
            sent = response.request
            if not response.history:  # after a redirect, the SDK decides anew
                kept = [pair for pair in sent.headers.raw if pair[0].lower() not in _OWN]
                self._first = (sent.url, kept)
            yield response

    @contextmanager
    def _again(
        self, url: "httpx2.URL", headers: list[tuple[bytes, bytes]], body: bytes, key: str
    ) -> Iterator["httpx2.Response"]:
        """The first request with another body."""
        import httpx2  # noqa: PLC0415 - start-up time

        own = [*headers, (_KEY.encode(), key.encode())]
        try:
            request = httpx2.Request("POST", url, headers=own, content=body)
            response = self._http.send(request, stream=True)
        except httpx2.TransportError as error:
            raise Unreachable(f"no answer: {error}") from error
        with closing(response):
            if response.status_code >= 400:
                raise failures.from_response(response)
            yield response

    def _encoded_tools(self, tools: Sequence[ToolSpec]) -> bytes:
        if self._tools is None or self._tools[0] is not tools:
            self._tools = (tools, dump([self._tool(tool) for tool in tools]))
        return self._tools[1]

    @abstractmethod
    def _body(self, conversation: Conversation, tools: bytes) -> bytes: ...

    @abstractmethod
    def _encode_turn(self, turn: Turn) -> bytes: ...

    @abstractmethod
    def _tool(self, tool: ToolSpec) -> dict[str, Any]: ...

    @abstractmethod
    def _assembler(self) -> Assembler: ...

    @abstractmethod
    def _ask_sdk(
        self, body: bytes, headers: dict[str, str]
    ) -> AbstractContextManager["httpx2.Response"]:
        """The answer to a request that the SDK makes. Raises ModelError."""
        ...

    @abstractmethod
    def close(self) -> None:
        """Release connections."""


def _read(response: "httpx2.Response", assembler: Assembler, stall_s: float) -> None:
    try:
        for event in events(response, stall_s):
            try:
                assembler.feed(event)
            except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
                raise MalformedReply(f"an unexpected chunk: {event.data[:200]!r}") from error
    except ModelError:
        if not assembler.whole:  # a whole answer is paid for: what follows it does not matter
            raise
    if not assembler.whole:
        kind = response.headers.get("content-type", "")
        if "event-stream" not in kind:
            raise MalformedReply(f"the route answered `{kind}`, not a stream; is its URL right?")
        raise DroppedStream("the stream ended before the answer was whole")


class EncodedTurns:
    """The JSON messages of a growing history, each turn encoded once."""

    def __init__(self, encode: Callable[[Turn], bytes]) -> None:
        self._encode = encode
        self._known: list[Turn] = []
        self._bytes = bytearray()

    def joined(self, turns: Sequence[Turn]) -> bytearray:
        """All messages of ``turns``, joined by commas; valid until the next call."""
        # Lists compare their items by identity first: microseconds, however long the history.
        if turns[: len(self._known)] != self._known:
            self._known, self._bytes = [], bytearray()  # the past was compacted
        for turn in turns[len(self._known) :]:
            if self._known:
                self._bytes += b","
            self._bytes += self._encode(turn)
            self._known.append(turn)
        return self._bytes


def dump(value: Any) -> bytes:
    """JSON bytes; a lone surrogate, which no provider accepts, becomes a question mark."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def arguments_object(text: str) -> dict[str, Any]:
    """A call's arguments as an object. Invalid ones are wrapped: history must be valid JSON."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {"invalid_json": text}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {"not_an_object": value}


def safe_name(name: str) -> str:
    """A tool's name as providers accept it in a history, whatever the model had called."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"
