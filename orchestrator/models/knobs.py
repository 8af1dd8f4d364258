"""Knobs of the scripted server: how slow, how faulty, how long.

They are set for a whole server, or for one model by a suffix of its name:
``oracle?latency_ms=200&e429=0.1&seed=1``. Rates are probabilities of a request's try, drawn from
``seed`` and the request itself, so that the same run fails in the same places.
"""

import dataclasses
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from orchestrator.errors import UserError


class UnknownKnob(UserError):
    """A knob that does not exist, or a value that is not of its type."""


@dataclass(frozen=True)
class Knobs:
    """Defaults are a quick, healthy provider."""

    latency_ms: float = 0.0  # before the first byte
    chunk_ms: float = 0.0  # between chunks; 0 sends the stream at once
    e429: float = 0.0  # rate of 429 with Retry-After
    e500: float = 0.0
    e529: float = 0.0  # overloaded
    drop: float = 0.0  # rate of streams that break in the middle
    cut: float = 0.0  # rate of streams that end politely, without their terminator
    malformed: float = 0.0  # rate of streams with a chunk that is not JSON
    empty: float = 0.0  # rate of whole replies without content
    refusal: float = 0.0  # rate of replies that the provider's filter stopped
    length: float = 0.0  # rate of replies that the output limit cut, in the middle of a call
    garbled: float = 0.0  # rate of replies with bytes that are not UTF-8 in their text
    seed: int = 0
    retry_after_s: float = 1.0  # what a 429 asks for
    steps: int = 50  # of `longhaul`
    tool_s: float = 0.0  # seconds that each command of `longhaul` takes
    output_bytes: int = 0  # that each command of `longhaul` prints
    circles: int = 0  # 1: all commands of `longhaul` are the same
    context_tokens: int = 0  # a longer prompt is refused as providers do; 0: there is no limit
    summaries: int = 1  # 0: asked for a summary of a session, go on with the story instead
    impostor: int = 0  # 1: say that another model answered
    strict_reasoning: int = 0  # 1: refuse a history whose reasoning did not come back exactly

    def overridden(self, pairs: Iterable[tuple[str, str]]) -> "Knobs":
        """These knobs with some set from text. Raises UnknownKnob."""
        changes: dict[str, Any] = {name: _value(name, text) for name, text in pairs}
        return dataclasses.replace(self, **changes)


TYPES: dict[str, type[int] | type[float]] = {
    field.name: int if isinstance(field.default, int) else float
    for field in dataclasses.fields(Knobs)
}
"""Every knob and the type of its value."""


def split_suffix(model: str) -> tuple[str, list[tuple[str, str]]]:
    """A model's name and the knobs of its suffix."""
    name, _, query = model.partition("?")
    return name, parse_qsl(query, keep_blank_values=True)


def _value(name: str, text: str) -> float | int:
    if name not in TYPES:
        near = difflib.get_close_matches(name, TYPES, n=1) or [", ".join(TYPES)]
        raise UnknownKnob(f"no knob named `{name}`; did you mean {near[0]}?")
    try:
        return TYPES[name](text)
    except ValueError as error:
        raise UnknownKnob(
            f"knob `{name}` needs a number ({TYPES[name].__name__}), not `{text}`"
        ) from error
