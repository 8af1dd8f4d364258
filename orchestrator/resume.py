"""Where an interrupted session stands, rebuilt from its transcript alone."""

from collections.abc import Iterable

from orchestrator.agents.asking import SERVED_MODEL
from orchestrator.agents.base import Standing
from orchestrator.models.base import Conversation, ModelReply, UserTurn
from transcripts.events import (
    Compaction,
    Event,
    Note,
    Prompt,
    Reply,
    ToolCallStarted,
    ToolResult,
    UserMessage,
)

INTERRUPTED = (
    "This call was interrupted by a restart of the machine around you: it had started, and whether "
    "it finished, in part or at all, is unknown. Look before you repeat it."
)


def standing(events: Iterable[Event]) -> tuple[Standing, ToolCallStarted | None]:
    """Where the session stands, and the tool call that had started and has no result.

    A transcript that was cut before its prompts gives a standing with an empty conversation.
    """
    builder = _Builder()
    for event in events:
        builder.take(event)
    return builder.finish()


class _Builder:
    def __init__(self) -> None:
        self._at = Standing(Conversation(""))
        self._started: ToolCallStarted | None = None
        self._offset = 0.0

    def take(self, event: Event) -> None:
        self._clock(event)
        if isinstance(event, Prompt):
            self._prompt(event)
        elif isinstance(event, Reply):
            if event.purpose != "side":
                self._close_reply()
            self._reply(event)
        elif isinstance(event, ToolCallStarted):
            self._started = event
        elif isinstance(event, ToolResult):
            self._at.finished(event)  # in the order of the calls, so the position is their count
            self._started = None
        elif isinstance(event, UserMessage):
            self._close_reply()
            self._at.say(event.text)
        elif isinstance(event, Compaction):
            self._close_reply()
            self._at.compacted(event)
        elif isinstance(event, Note) and event.topic == SERVED_MODEL:
            self._at.strangers.add(str(event.raw))

    def finish(self) -> tuple[Standing, ToolCallStarted | None]:
        self._at.seconds += self._offset
        return self._at, self._started

    def _clock(self, event: Event) -> None:
        """Offsets restart with each process; what was before a restart is kept as seconds."""
        if event.offset_s < self._offset:
            self._at.seconds += self._offset
        self._offset = event.offset_s

    def _prompt(self, event: Prompt) -> None:
        if event.role == "system":
            self._at.conversation.system = event.text
        else:
            self._at.opening = event.text
            self._at.conversation.turns.append(UserTurn(event.text))

    def _reply(self, event: Reply) -> None:
        at = self._at
        at.count(event.usage, event.cost_usd)
        reply = ModelReply(
            text=event.text,
            tool_calls=event.tool_calls,
            stop_reason=event.stop_reason,
            usage=event.usage,
            served_model=event.served_model,
            latency_s=event.latency_s,
            reasoning=event.reasoning,
            raw=event.raw,
        )
        if event.purpose == "summary":
            at.summary = reply
        if event.purpose != "step":
            return
        at.step = event.step + 1
        at.gauge.observe(at.conversation.turns, event.usage)
        at.open_reply = reply

    def _close_reply(self) -> None:
        """The open reply got its answers: it is part of the conversation now."""
        reply = self._at.open_reply
        if reply is not None:
            self._at.close(reply)
            self._at.open_reply, self._started = None, None
