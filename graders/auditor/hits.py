"""What strikes: a place in an artefact with its verbatim quote."""

import re
from dataclasses import dataclass

from transcripts.words import Strength

_SURROGATES = re.compile("[\ud800-\udfff]+")
MAX_QUOTE = 400
"""Characters of a quote: enough to judge a line by, short enough to print."""


@dataclass(frozen=True)
class Hit:
    """One place where a check strikes. ``quote`` is verbatim text of ``place``."""

    place: str
    quote: str
    why: str
    lines: tuple[int, int] | None = None
    steps: tuple[int, ...] = ()
    mechanism: str | None = None  # where it is finer than the check's own
    strength: Strength | None = None  # where this hit is weaker or stronger than the check's own


def quotable(text: str) -> str:
    """The longest part of ``text`` that is valid Unicode, cut to ``MAX_QUOTE``.

    Bytes that are no UTF-8 stand as lone surrogates in ``text``: a stray one must not make a
    finding unquotable.
    """
    return max(_SURROGATES.split(text), key=len)[:MAX_QUOTE].strip()
