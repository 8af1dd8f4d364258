"""The window: how full it is, and how a conversation is shortened.

Everything here is a pure function of the conversation and of recorded events, so that a session
that goes on after a crash has exactly the conversation that it had (`orchestrator.resume`).
Asking the model for a summary is `agents.compaction`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.models.base import Conversation, ModelReply, ToolTurn, Turn, UserTurn
from transcripts.events import Compaction
from transcripts.records import Usage

if TYPE_CHECKING:
    from orchestrator.models.entry import ModelEntry

OVERHEAD_CHARS = 4000
"""System prompt and tools, about: part of every prompt, and of no turn."""

_UNKNOWN_RATE = 3.0
"""Characters a token before a provider has said how many tokens a prompt had: code is dense."""

LONG_RESULT = 600
"""Characters of a tool's output that are never elided."""
_END = 200
"""Characters kept of each end of an elided output."""
_MARK = "\n[... {count} characters of this output were elided to save context ...]\n"

_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Request fields that claim a part of the window for the answer."""


def prompt_room(entry: "ModelEntry") -> int | None:
    """Tokens that a prompt may take, None where the window is not known.

    The answer needs a part of the window: what the request claims for it, an eighth at least.
    """
    window = entry.context_tokens
    if window is None:
        return None
    params = entry.request_params()
    claimed = [value for key in _OUTPUT_LIMITS if isinstance(value := params.get(key), int)]
    return window - min(max([window // 8, *claimed]), window // 2)


def size(turn: Turn) -> int:
    """Characters of a turn."""
    if isinstance(turn, UserTurn):
        return len(turn.text)
    if isinstance(turn, ToolTurn):
        return sum(len(result.text) for result in turn.results)
    calls = sum(len(call.name) + len(call.arguments) for call in turn.tool_calls)
    return len(turn.text) + len(turn.reasoning) + calls


@dataclass
class Gauge:
    """How many tokens a conversation takes: what the provider counted last, and what came since.

    ``room`` is what a prompt may take; None until the roster or an overflow has said it.
    """

    room: int | None = None
    _prompt_tokens: int = 0
    _prompt_chars: int = 0
    _counted: int = 0  # turns
    _chars: int = OVERHEAD_CHARS

    def observe(self, turns: Sequence[Turn], usage: Usage) -> None:
        """A request with these turns was answered."""
        self._prompt_chars = self._characters(turns)
        self._prompt_tokens = (
            usage.input_tokens
            + usage.cache_read_tokens
            + usage.cache_write_5m_tokens
            + usage.cache_write_1h_tokens
        )

    def estimate(self, turns: Sequence[Turn]) -> int:
        """Tokens of a request with these turns."""
        chars = self._characters(turns)
        if not self._prompt_tokens:
            return round(chars / _UNKNOWN_RATE)
        return max(0, round(self._prompt_tokens + (chars - self._prompt_chars) / self.rate))

    @property
    def rate(self) -> float:
        """Characters a token, as the provider counts."""
        if not self._prompt_tokens:
            return _UNKNOWN_RATE
        return min(5.0, max(1.0, self._prompt_chars / self._prompt_tokens))

    def overflowed(self, turns: Sequence[Turn]) -> None:
        """A request with these turns did not fit: learn a room from the last one that did."""
        asked = self.estimate(turns)
        fitted = self._prompt_tokens if self._prompt_tokens < asked else 0
        learned = max(fitted, asked // 2)
        self.room = min(learned, self.room * 4 // 5) if self.room is not None else learned

    def limit(self, room: int | None) -> None:
        """What the roster says of the window; a smaller room that was learned stays."""
        known = [value for value in (room, self.room) if value is not None]
        self.room = min(known) if known else None

    def recount(self) -> None:
        """The conversation was shortened."""
        self._counted, self._chars = 0, OVERHEAD_CHARS

    def _characters(self, turns: Sequence[Turn]) -> int:
        for turn in turns[self._counted :]:  # each turn is measured once
            self._chars += size(turn)
        self._counted = len(turns)
        return self._chars


def kept_turns(turns: Sequence[Turn], most_chars: float) -> int:
    """How many turns the last whole steps have that fit into ``most_chars``; one step at least."""
    kept = chars = 0
    for count, turn in enumerate(reversed(turns[1:]), 1):
        chars += size(turn)
        if kept and chars > most_chars:
            break
        if isinstance(turn, ModelReply):
            kept = count
    return kept


def elided(turn: Turn) -> Turn:
    """The turn with long tool output cut to its ends, said in place. Twice is the same as once."""
    if not isinstance(turn, ToolTurn) or all(len(r.text) <= LONG_RESULT for r in turn.results):
        return turn
    return ToolTurn(tuple(replace(r, text=_ends(r.text)) for r in turn.results))


def _ends(text: str) -> str:
    if len(text) <= LONG_RESULT:
        return text
    mark = _MARK.format(count=len(text) - 2 * _END)
    return f"{text[:_END]}{mark}{text[-_END:]}"


def apply(conversation: Conversation, opening: str, event: Compaction) -> None:
    """Shorten a conversation as ``event`` says; ``opening`` is the task's words, always kept."""
    turns = conversation.turns
    border = len(turns) - event.kept_turns
    past, kept = turns[:border], turns[border:]
    if event.method == "elide":
        turns[:] = [*map(elided, past), *kept]
    else:
        # One turn with the task: two user turns in a row are refused by some servers' templates.
        turns[:] = [UserTurn(opening + event.summary), *kept]
