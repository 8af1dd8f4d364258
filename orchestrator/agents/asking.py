"""One paid model call of a session: its intent, its retries and its answer, all recorded."""

from collections.abc import Sequence
from typing import Literal

from orchestrator.agents.base import SessionContext
from orchestrator.models.base import (
    Conversation,
    ModelClient,
    ModelReply,
    RetryNotice,
    ToolSpec,
)
from orchestrator.models.served import same_model
from transcripts.events import Note, Reply, Request, Retry

SERVED_MODEL = "served_model"
"""Topic of the note that another model answered than was asked."""


class Asker:
    """Asks the session's model; totals grow with each answer."""

    def __init__(
        self, context: SessionContext, model: ModelClient, tools: Sequence[ToolSpec]
    ) -> None:
        self._context, self._model = context, model
        self._tools = tools

    def ask(
        self, conversation: Conversation, purpose: Literal["step", "summary"] = "step"
    ) -> ModelReply:
        """One answer. Raises ModelError when the policy gives up."""
        context, at, transcript = self._context, self._context.standing, self._context.transcript
        transcript.append_soon(
            Request,
            step=at.step,
            messages=len(conversation.turns),
            protocol=context.entry.protocol,
            purpose=purpose,
        )
        reply = self._model.reply(conversation, self._tools, self._log_retry)
        cost = context.entry.cost_usd(reply.usage)
        # A call, a word of ours or the end follows at once, and brings it to the disk.
        transcript.append_soon(
            Reply,
            step=at.step,
            purpose=purpose,
            text=reply.text,
            reasoning=reply.reasoning,
            tool_calls=reply.tool_calls,
            stop_reason=reply.stop_reason,
            usage=reply.usage,
            cost_usd=cost,
            served_model=reply.served_model,
            latency_s=reply.latency_s,
            raw=reply.raw,
        )
        at.count(reply.usage, cost)
        self._note_model(reply.served_model)
        return reply

    def _log_retry(self, notice: RetryNotice) -> None:
        self._context.transcript.append(
            Retry,
            step=self._context.standing.step,
            try_number=notice.try_number,
            error=notice.error,
            wait_s=notice.wait_s,
            message=notice.message,
        )

    def _note_model(self, served: str | None) -> None:
        """Flag an answer of another model than was asked, once for each."""
        asked, strangers = self._context.entry.model, self._context.standing.strangers
        if served is None or served in strangers or same_model(asked, served):
            return
        strangers.add(served)
        text = f"asked for {asked}, answered by {served}"
        self._context.transcript.append(Note, topic=SERVED_MODEL, text=text, raw=served)
