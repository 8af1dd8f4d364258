"""Server-sent events of a model's answer, read as they come, with a watchdog for stalls.

The SDKs own connection, headers and errors of a request; the stream is read here because it must
be known whether it had its terminator, whether a chunk was valid JSON, and whether tokens still
come. A connection that only sends keep-alives is stalled, though bytes arrive.
"""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.models.errors import DroppedStream, MalformedReply, ModelError, Unreachable

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True)
class ServerEvent:
    """One event: its name (None where the protocol names none) and its data."""

    name: str | None
    data: str

    def json(self) -> dict[str, Any]:
        """The data as a JSON object. Raises MalformedReply."""
        try:
            value = json.loads(self.data)
        except ValueError as error:
            raise MalformedReply(f"a chunk that is not JSON: {self.data[:200]!r}") from error
        if not isinstance(value, dict):
            raise MalformedReply(f"a chunk that is not a JSON object: {self.data[:200]!r}")
        return value


def events(response: "httpx2.Response", stall_s: float) -> Iterator[ServerEvent]:
    """The events of a response, pings left out.

    Raises Unreachable when nothing ever came within ``stall_s``, DroppedStream when tokens stopped
    coming for ``stall_s`` or the connection broke. The plain end of the body is the iterator's
    end: whether the answer was whole then, the protocol's client knows.
    """
    import httpx2  # noqa: PLC0415 - start-up time

    last_token: float | None = None
    waiting_since = time.monotonic()
    try:
        for event in decoded(response.iter_bytes()):
            now = time.monotonic()
            if event is not None:
                last_token = waiting_since = now
                yield event
            elif now - waiting_since > stall_s:
                raise _stalled(stall_s, started=last_token is not None)
    except httpx2.TimeoutException as error:
        raise _stalled(stall_s, started=last_token is not None) from error
    except httpx2.TransportError as error:
        raise DroppedStream(f"the connection broke in the middle of the answer: {error}") from error


def _stalled(stall_s: float, *, started: bool) -> ModelError:
    if started:
        return DroppedStream(f"stalled: no token for {stall_s:g} s")
    return Unreachable(f"no first token within {stall_s:g} s")


def decoded(blocks: Iterable[bytes]) -> Iterator[ServerEvent | None]:
    """Events, and None for every block or event that carries no token (comments, pings)."""
    tail = b""
    fields: list[str] = []
    for block in blocks:
        *lines, tail = (tail + block).split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r").decode("utf-8", "replace")
            if line:
                fields.append(line)
            elif fields:
                yield _event(fields)
                fields = []
        yield None
    if tail.strip():
        fields.append(tail.rstrip(b"\r").decode("utf-8", "replace"))
    if fields:  # a last event without its blank line: servers do that
        yield _event(fields)


def _event(fields: list[str]) -> ServerEvent | None:
    name: str | None = None
    data: list[str] = []
    for line in fields:
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if key == "data":
            data.append(value)
        elif key == "event":
            name = value
    if name == "ping" or not data:
        return None
    return ServerEvent(name, "\n".join(data))
