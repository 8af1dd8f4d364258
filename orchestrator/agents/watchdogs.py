"""The repetition watchdog: a session that does the same again and again gets nowhere.

A step repeats when its calls and their results were all seen lately, to the byte; `check` and
`bench` count as the same whatever they measured. Anything new starts the count afresh, so an edit
between two checks is progress. A step that waited (a poll of a long build) weighs a tenth.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from orchestrator.models.base import ModelReply, ToolOutcome

TELL_AT = 12.0
"""Repeated steps in a row after which the model is told; a wait of the model's own counts less."""
END_AT = 24.0
"""Repeated steps in a row after which the session ends with the limit ``repetition``."""
WAITED_S = 3.0
"""Seconds of a step's calls from which on it is a wait."""
WAIT_WEIGHT = 0.1
_REMEMBERED = 256
"""Steps that are remembered: longer cycles than this are not seen."""
_MEASURING = ("check", "bench")

REPEATED = (
    "You have repeated the same calls with the same results for a while, and nothing has changed. "
    "Try something else, wait longer between two looks at something that is slow (`sleep`), or "
    "call `submit` if you are done. If this goes on, the session ends."
)

Word = Literal["", "tell", "end"]


class Repetition:
    """Watches the steps of one session; rebuilt from the transcript when it is resumed."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._weight = 0.0
        self.told = False

    def observe(self, reply: ModelReply, results: Sequence[ToolOutcome], seconds: float) -> Word:
        """A step is over: its reply, its results in order, the seconds that its calls took."""
        mark = _mark(reply, results)
        if mark not in self._seen:
            self._weight, self.told = 0.0, False
            self._seen[mark] = None
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
            return ""
        self._seen.move_to_end(mark)
        self._weight += WAIT_WEIGHT if seconds >= WAITED_S else 1.0
        if self.told:
            return "end" if self._weight >= END_AT else ""
        return "tell" if self._weight >= TELL_AT else ""


def _mark(reply: ModelReply, results: Sequence[ToolOutcome]) -> bytes:
    """What a step did and what came of it."""
    digest = hashlib.blake2b(digest_size=16)
    if not reply.tool_calls:
        _add(digest, reply.text)
    for call, result in zip(reply.tool_calls, results, strict=False):
        _add(digest, call.name)
        _add(digest, call.arguments)
        _add(digest, "" if call.name in _MEASURING else result.text)
    return digest.digest()


def _add(digest: "hashlib.blake2b", text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    digest.update(b"%d:" % len(data))
    digest.update(data)
