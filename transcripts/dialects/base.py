"""What a reader of another tool's log gives, and what all line-based readers share."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, NoReturn, Protocol

from transcripts.events import Event
from transcripts.records import Usage


class LogProblem(NamedTuple):
    """A line that was not as it should be. What could be read of it was read."""

    line: int  # 1-based
    reason: str


@dataclass(frozen=True)
class ImportedLog:
    """A log in our terms. The original's bytes are the importer's to keep (``add_source``).

    ``events`` are numbered from 0 and carry the log's times; ``TranscriptWriter.copy`` gives them
    their numbers in a transcript. ``models`` are (provider, model id) in order of first use.
    ``cost_usd`` is None where the log does not know, or says 0 because it has no price.
    """

    dialect: str
    file_name: str
    sha256: str
    data: bytes = field(repr=False)
    events: tuple[Event, ...] = field(repr=False)
    session_id: str | None
    version: str | None
    cwd: str | None
    models: tuple[tuple[str, str], ...]
    thinking_level: str | None
    started_at: datetime | None
    ended_at: datetime | None
    usage: Usage
    cost_usd: float | None
    steps: int  # answers of the model
    finished: bool  # the last answer ended on the model's own word
    problems: tuple[LogProblem, ...]

    @property
    def bad_lines(self) -> tuple[int, ...]:
        """Numbers of the lines with problems, 1-based, each once."""
        return tuple(sorted({problem.line for problem in self.problems}))


class Dialect(Protocol):
    """Reads one tool's logs."""

    name: str

    def recognises(self, data: bytes) -> bool:
        """True when the content is surely this tool's."""
        ...

    def read(self, data: bytes, file_name: str, sha256: str) -> ImportedLog:
        """Read all of it; never raises over content."""
        ...


class LogObject(NamedTuple):
    """One JSON object of a log, or with ``value`` None a piece that is not one."""

    line: int  # 1-based
    value: dict[str, Any] | None
    text: str  # as it stood there; bytes that are no UTF-8 are lone surrogates (surrogateescape)
    problem: str | None = None


def json_lines(data: bytes) -> Iterator[LogObject]:
    """The objects of a JSON lines log, whatever happened to it.

    A byte order mark and CRLF are tolerated in silence. Invalid UTF-8, several objects on a line,
    a line that is no JSON object and a torn last line are reported; every object that can be read
    is read.
    """
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    lines = data.split(b"\n")
    for number, raw in enumerate(lines, 1):
        raw = raw.rstrip(b"\r")  # noqa: PLW2901 - the line without its ending
        if raw.strip():
            yield from _objects(number, raw, is_last=number == len(lines))


def _objects(number: int, raw: bytes, *, is_last: bool) -> Iterator[LogObject]:
    try:
        text, encoding_problem = raw.decode(), None
    except UnicodeDecodeError as error:
        text = raw.decode(errors="surrogateescape")
        encoding_problem = f"invalid UTF-8 at byte {error.start + 1}"
    found, rest = _leading_objects(text)
    several = f"{len(found)} objects on one line" if len(found) > 1 else None
    problem = encoding_problem or several
    for value, piece in found:
        yield LogObject(number, value, piece, problem)
        problem = None
    if rest:
        reason = "torn last line" if is_last else "not a JSON object"
        if encoding_problem and not found:
            reason = f"{reason}, {encoding_problem}"
        yield LogObject(number, None, rest, reason)


def _leading_objects(text: str) -> tuple[list[tuple[dict[str, Any], str]], str]:
    """The objects at the start of a line, and what follows the last of them."""
    found = []
    rest = text.strip()
    while rest:
        parsed = _parse(rest)
        if parsed is None:
            break
        value, end = parsed
        found.append((value, rest[:end]))
        rest = rest[end:].lstrip(" \t\r,")
    return found, rest


def _parse(text: str) -> tuple[dict[str, Any], int] | None:
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return (value, end) if isinstance(value, dict) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
