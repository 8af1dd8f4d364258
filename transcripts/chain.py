"""The hash chain of a transcript: each line proves the lines before it.

A line is the event's JSON object with one last member, ``"chain"``: sha256 over the previous link
(hex) and the line's bytes without that member. The first link derives from the attempt's id, so a
transcript cannot be passed off as another attempt's.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from transcripts.events import EVENT, AnyEvent, Event

_MEMBER = b',"chain":"'
_TAIL = len(_MEMBER) + 64 + len(b'"}')


def first_link(attempt_id: str) -> str:
    """The link before the first line."""
    return hashlib.sha256(f"transcript:{attempt_id}".encode()).hexdigest()


def next_link(previous: str, body: bytes) -> str:
    """The link of a line whose bytes without the chain are ``body``."""
    state = hashlib.sha256(previous.encode())
    state.update(body)
    return state.hexdigest()


def dump(event: AnyEvent) -> bytes:
    """One event as JSON bytes. Lone surrogates, which JSON knows as escapes, survive."""
    try:
        return event.model_dump_json().encode()
    except PydanticSerializationError:
        return json.dumps(event.model_dump(mode="json"), separators=(",", ":")).encode()


def load(body: bytes) -> Event:
    """Parse what ``dump`` wrote.

    Raises:
        ValueError: not an event.
    """
    try:
        return EVENT.validate_json(body)
    except ValidationError:
        value: Any = json.loads(body)
        return EVENT.validate_python(value)


def join(body: bytes, link: str) -> bytes:
    """The line, newline included."""
    return body[:-1] + _MEMBER + link.encode() + b'"}\n'


def split(line: bytes) -> tuple[bytes, str] | None:
    """Body and link of a line without its newline, or None when it is not such a line."""
    body, tail = line[:-_TAIL], line[-_TAIL:]
    if not body.startswith(b"{") or not tail.startswith(_MEMBER) or not tail.endswith(b'"}'):
        return None
    return body + b"}", tail[len(_MEMBER) : -2].decode("ascii", "replace")


@dataclass(frozen=True)
class Line:
    """One line as read: ``body`` is None and ``problem`` says why when it is not usable."""

    number: int  # 0-based
    body: bytes | None
    problem: str | None = None
    torn: bool = False  # the incomplete last line


class Chain:
    """Follows the links over the lines of one transcript."""

    def __init__(self, attempt_id: str) -> None:
        self.link = first_link(attempt_id)
        self.count = 0

    def follow(self, lines: Iterable[bytes]) -> Iterator[Line]:
        """Check each line; after a break the chain goes on from the line's own link."""
        return map(self.check, lines)

    def check(self, raw: bytes) -> Line:
        """Check the next line, given with its newline; a last one without it is torn."""
        number = self.count
        self.count += 1
        if not raw.endswith(b"\n"):
            return Line(number, None, f"line {number + 1}: torn, dropped", torn=True)
        parts = split(raw[:-1])
        if parts is None:
            return Line(number, None, f"line {number + 1}: not a transcript line")
        body, link = parts
        expected = next_link(self.link, body)
        self.link = link
        problem = None if link == expected else f"line {number + 1}: the chain breaks here"
        return Line(number, body, problem)
