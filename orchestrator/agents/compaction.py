"""Making room in a full window, rung by rung, each rung recorded as a `compaction` event.

Older tool output is elided; where that is not enough, the model itself summarises the past; where
one step alone is too large, its output is elided too; at last only the task and a summary are left.
The prefix that a provider caches is rewritten by a compaction and by nothing else, and a compaction
makes so much room that the next one is far away.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

from orchestrator.agents.asking import Asker
from orchestrator.agents.base import SessionContext
from orchestrator.agents.context import elided, kept_turns, size
from orchestrator.models.base import (
    SUMMARY_CUE,
    Conversation,
    ModelReply,
    ToolTurn,
    Turn,
    UserTurn,
)
from orchestrator.models.errors import BadRequest, ContextOverflow, DroppedStream, MalformedReply
from sandboxes.errors import FileTooLarge, OutsideWorkspace
from transcripts.events import Compaction

FULL = 0.92
"""Part of the room at which it is made; the estimate of the newest output may be a little off."""
ENOUGH_ELIDED = 0.5
"""Part of the room below which eliding alone is enough: else the next compaction comes too soon."""
ENOUGH_SUMMARISED = 0.75
KEPT = 0.2
"""Part of the room for the last steps, kept as they are."""
SUMMARY_SHARE = 0.15
"""Part of the room for a summary, and for the submission's text."""
GROWTH = 1.25
"""A conversation that cannot be made smaller is left alone until it has grown by this."""

SUMMARISE = (
    f"The context is almost full. {SUMMARY_CUE}: do not call a tool, answer in words. Your summary "
    "takes the place of everything but the task, the submission as it is, and the last steps. "
    "Keep what is needed to go on: what was tried and what came of it (with figures), what was "
    "learned about the problem and the machine, the decisions and their reasons, the state of the "
    "files, and what to do next."
)
BEFORE = "\n\n---\nThe session so far was shortened. What happened before the steps below:\n\n"
MECHANICAL = "(A record of the calls; no summary could be had.)\n"
STATE = "\n\nThe workspace when this was written:\n"

Trigger = Literal["window", "overflow"]
_MOST_CALLS = 40
_MOST_FILES = 60


class Compactor:
    """Keeps one session's conversation within the model's window."""

    def __init__(self, context: SessionContext, asker: Asker) -> None:
        self._context = context
        self._at = context.standing
        self._asker = asker
        self._rung = 0
        self._floor = 0.0  # tokens after the last compaction

    def answered(self) -> None:
        """The model has answered: the next compaction starts at the gentlest rung."""
        self._rung = 0

    def make_room(self) -> None:
        """Compact where the next request would fill the window. Raises ModelError."""
        if self._at.summary is not None:  # paid for before a crash
            self._summarise("window")
        if self._fits(FULL) or self._tokens() < self._floor * GROWTH:
            return
        self._compact("window")

    def after_overflow(self) -> bool:
        """The provider refused the conversation as too long; False when it cannot be shortened."""
        self._at.gauge.overflowed(self._turns)
        return self._compact("overflow")

    @property
    def _turns(self) -> list[Turn]:
        return self._at.conversation.turns

    def _tokens(self) -> int:
        return self._at.gauge.estimate(self._turns)

    def _fits(self, part: float) -> bool:
        room = self._at.gauge.room
        return room is None or self._tokens() <= part * room

    def _chars(self, part: float) -> int:
        """Characters in this part of the room."""
        gauge = self._at.gauge
        return round(part * (gauge.room or self._tokens()) * gauge.rate)

    def _compact(self, trigger: Trigger) -> bool:
        changed = False
        while self._rung < len(_RUNGS):
            rung, enough = _RUNGS[self._rung]
            self._rung += 1
            changed = rung(self, trigger) or changed
            if changed and self._fits(enough):
                break
        self._floor = self._tokens()
        return changed

    # --- rungs --------------------------------------------------------------------------------

    def _elide(self, trigger: Trigger) -> bool:
        """Elide older output, where that makes room enough; the last step's too if it is huge."""
        kept = self._kept()
        if sum(map(size, self._turns[len(self._turns) - kept :])) > self._chars(ENOUGH_SUMMARISED):
            kept = 0
        past = self._turns[: len(self._turns) - kept]
        saved = sum(size(turn) - size(elided(turn)) for turn in past)
        gauge = self._at.gauge
        target = ENOUGH_ELIDED * (gauge.room or 0)
        if not saved or self._tokens() - saved / gauge.rate > target:
            return False
        return self._log("elide", trigger, kept)

    def _summarise(self, trigger: Trigger) -> bool:
        """Replace the past by the model's own summary, or by a record of its calls."""
        kept = self._kept()
        if trigger == "overflow":  # what did not fit would not fit with a question more either
            self._elide_past(kept)
        text = self._model_summary(kept)[: self._chars(SUMMARY_SHARE)]
        method: Literal["summary", "mechanical"] = "summary" if text else "mechanical"
        return self._log(method, trigger, kept, text or self._record(kept))

    def _elide_all(self, trigger: Trigger) -> bool:
        """Elide the last steps' output too: one of them alone is too large."""
        if all(elided(turn) is turn for turn in self._turns):
            return False
        return self._log("elide", trigger, 0)

    def _drop(self, trigger: Trigger) -> bool:
        """Leave the task and a record of what was done, no step."""
        if len(self._turns) == 1:
            return False
        return self._log("mechanical", trigger, 0, self._record(0))

    # --- parts --------------------------------------------------------------------------------

    def _kept(self) -> int:
        return kept_turns(self._turns, self._chars(KEPT))

    def _elide_past(self, kept: int) -> bool:
        past = self._turns[: len(self._turns) - kept]
        return any(elided(turn) is not turn for turn in past) and self._log(
            "elide", "overflow", kept
        )

    def _log(
        self,
        method: Literal["elide", "summary", "mechanical"],
        trigger: Trigger,
        kept: int,
        text: str = "",
    ) -> bool:
        """Record the compaction, then do it: what is recorded is what a resumed session has."""
        if method != "elide":
            text = BEFORE + text + STATE + self._workspace()
        event = self._context.transcript.append(
            Compaction,
            method=method,
            trigger=trigger,
            summary=text,
            kept_turns=kept,
            tokens_before=self._tokens(),
            room_tokens=self._at.gauge.room,
        )
        self._at.compacted(event)
        return True

    def _model_summary(self, kept: int) -> str:
        """What the model says; empty where it cannot or will not.

        A provider that is down raises: the session is resumed later, and loses nothing.
        """
        reply, self._at.summary = self._at.summary, None
        try:
            reply = reply or self._ask_summary()
        except ContextOverflow:
            if not self._elide_past(kept):
                return ""
            try:
                reply = self._ask_summary()
            except BadRequest:
                return ""
        except (BadRequest, MalformedReply, DroppedStream):
            return ""
        return "" if reply.stop_reason == "refusal" else reply.text.strip()

    def _ask_summary(self) -> ModelReply:
        conversation = self._at.conversation
        question = Conversation(conversation.system, [*conversation.turns, UserTurn(SUMMARISE)])
        return self._asker.ask(question, "summary")

    def _record(self, kept: int) -> str:
        """The summary so far and the last calls of the past, each with the start of its result."""
        turns = self._turns
        first = turns[0]
        before = first.text[len(self._at.opening) :] if isinstance(first, UserTurn) else ""
        before = before.removeprefix(BEFORE).partition(STATE)[0][: self._chars(SUMMARY_SHARE)]
        lines = []
        for reply, answers in pairwise(turns[: len(turns) - kept]):
            if isinstance(reply, ModelReply) and isinstance(answers, ToolTurn):
                for call, result in zip(reply.tool_calls, answers.results, strict=False):
                    said = result.text.strip().partition("\n")[0][:100]
                    lines.append(f"- {call.name} {call.arguments[:100]} -> {said}")
        calls = "\n".join(lines[-_MOST_CALLS:])[-self._chars(SUMMARY_SHARE) :]
        return f"{before}\n{MECHANICAL}{calls}".strip()

    def _workspace(self) -> str:
        """The submission's state: files, the last check and bench, the named file's text."""
        sandbox, name = self._context.sandbox, self._context.task.interface.file
        files = [f"{file.path} ({len(file.data)} bytes)" for file in sandbox.snapshot()]
        if len(files) > _MOST_FILES:
            files[_MOST_FILES:] = [f"and {len(files) - _MOST_FILES} more"]
        parts = ["files: " + ", ".join(files)]
        for tool, text in sorted(self._at.reports.items()):
            parts.append(f"last {tool}: {text[:1000]}")
        try:
            text = sandbox.get(name).decode("utf-8", "replace")
        except (OSError, OutsideWorkspace, FileTooLarge):
            return "\n".join([*parts, f"{name}: not there"])
        if len(text) > self._chars(SUMMARY_SHARE):
            return "\n".join([*parts, f"{name}: {len(text)} characters; view it before you edit"])
        return "\n".join([*parts, f"{name}:\n```\n{text}\n```"])


_RUNGS: tuple[tuple[Callable[[Compactor, Trigger], bool], float], ...] = (
    (Compactor._elide, ENOUGH_ELIDED),
    (Compactor._summarise, ENOUGH_SUMMARISED),
    (Compactor._elide_all, FULL),
    (Compactor._drop, float("inf")),
)
"""From the gentlest on: each with the part of the room that is enough after it."""
