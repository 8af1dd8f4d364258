"""From the wire of a foreign harness to the events of a transcript.

The gateway hands over each exchange before its end reaches the session. What the model said is in
its answer, and what its calls brought is in the next request; both are events here, in that order,
so a transcript of any harness reads as one of our own loop. The bytes lie beside it (`wire/`).
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.agents.agreement import WireCall
from orchestrator.agents.base import SessionContext
from orchestrator.gateway.terms import Exchange
from orchestrator.models.base import ModelReply, ToolOutcome
from orchestrator.models.wire_answers import reply_of
from orchestrator.models.wire_requests import Newest, WireResult, newest_of
from transcripts.events import (
    Note,
    Prompt,
    Reply,
    Request,
    Retry,
    ToolCall,
    ToolCallStarted,
    ToolResult,
    UserMessage,
)
from transcripts.records import Usage
from transcripts.wire import Passed, WireFolder

_KEPT_TURNS = 4
"""Of the conversation, for who watches: the harness holds its own."""


@dataclass(frozen=True)
class _Open:
    """A call that was handed to the harness and has no result yet."""

    call: ToolCall
    step: int
    since: datetime


class WireLog:
    """Keeps and narrates the exchanges of one session. Threads may share it."""

    def __init__(self, context: SessionContext) -> None:
        self._at, self._transcript = context.standing, context.transcript
        self._opening, self._on_progress = context.standing.opening, context.on_progress
        self._wire, self._hide = (
            WireFolder(context.folder),
            context.transcript.secrets.replace_bytes,
        )
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}
        self._heard: set[bytes] = set()
        self._has_system = False
        self.calls: list[WireCall] = []  # the whole answers
        self.newest: Exchange | None = None  # of the session itself, whole or not
        self.repeats = False
        self.error: Exception | None = None  # what keeping an exchange raised

    def record(self, exchange: Exchange) -> None:
        """Keep one; see `Terms.record`."""
        with self._lock:
            try:
                self._wire.put(_passed(exchange, self._hide))
                if exchange.is_billed:
                    self._narrate(exchange)
            except Exception as error:
                self.error = error
                raise

    @property
    def waits_for_a_tool(self) -> bool:
        """Whether the newest answer called tools that have not come back.

        A harness that tells off a malformed call may never answer it: older ones do not count.
        """
        return any(one.step == self._at.step - 1 for one in self._open.values())

    def _narrate(self, exchange: Exchange) -> None:
        asked = newest_of(exchange.dialect, exchange.received)
        is_step = asked is None or asked.offers_tools
        if is_step:
            self.newest = exchange
        if asked is not None and is_step:
            self._take(asked, exchange.started_at)
        reply = None
        if exchange.status == 200 and not exchange.error:
            reply = reply_of(exchange.dialect, exchange.response, exchange.latency_s)
        self._tell_tries(exchange)
        if reply is None:
            self._tell_failure(exchange)
        else:
            self._answer(exchange, reply, asked, is_step=is_step)

    # --- what the request adds -----------------------------------------------------------------

    def _take(self, asked: Newest, at: datetime) -> None:
        if asked.system and not self._has_system:
            self._has_system = True
            self._transcript.append_soon(Prompt, role="system", text=asked.system)
        for result in asked.results:
            self._result(result, at)
        for text in asked.texts:
            self._hear(text)
        if self._at.open_reply is not None and not self.waits_for_a_tool:
            self._close(self._at.open_reply)

    def _result(self, result: WireResult, at: datetime) -> None:
        found = self._open.pop(result.call_id, None) or self._by_name(result.name)
        if found is None:
            return  # told before: every request repeats the whole conversation
        text, blob = self._transcript.put_text(result.text)
        event = self._transcript.append_soon(
            ToolResult,
            step=found.step,
            call_id=found.call.id,
            name=found.call.name,
            status="error" if result.is_error else "ok",
            text=text,
            duration_s=max(0.0, round((at - found.since).total_seconds(), 6)),
            blob=blob,
        )
        self._at.answered.append(ToolOutcome(event.call_id, event.text, result.is_error))

    def _by_name(self, name: str) -> _Open | None:
        """Harnesses that make up ids of their own answer in the order of the calls."""
        found = next((key for key, one in self._open.items() if one.call.name == name), None)
        return self._open.pop(found) if name and found is not None else None

    def _hear(self, text: str) -> None:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        if digest in self._heard:
            return
        self._heard.add(digest)
        if text.strip() != self._opening.strip():
            self._transcript.append_soon(UserMessage, text=text, author="harness")

    def _close(self, reply: ModelReply) -> None:
        self._at.open_reply = None
        self.repeats = self._at.close(reply) == "end" or self.repeats
        del self._at.conversation.turns[:-_KEPT_TURNS]

    # --- what came back ------------------------------------------------------------------------

    def _answer(
        self, exchange: Exchange, reply: ModelReply, asked: Newest | None, *, is_step: bool
    ) -> None:
        usage, step = exchange.usage or Usage(), self._at.step
        self._transcript.append_soon(
            Request,
            step=step,
            messages=asked.messages if asked else 0,
            protocol=exchange.dialect,
            purpose="step" if is_step else "side",
        )
        self._transcript.append(
            Reply,
            step=step,
            purpose="step" if is_step else "side",
            text=reply.text,
            reasoning=reply.reasoning,
            tool_calls=reply.tool_calls,
            stop_reason=reply.stop_reason,
            usage=usage,
            cost_usd=exchange.cost_usd,
            served_model=reply.served_model,
            latency_s=reply.latency_s,
            raw=reply.raw,
        )
        self._at.count(usage, exchange.cost_usd)
        self.calls.append(WireCall(usage, len(reply.tool_calls)))
        if is_step:
            self._begin(reply, step)

    def _begin(self, reply: ModelReply, step: int) -> None:
        self._at.step = step + 1
        if self._at.open_reply is not None:
            self._close(self._at.open_reply)
        self._at.open_reply = reply
        for call in reply.tool_calls:
            event = self._transcript.append(ToolCallStarted, step=step, call=call)
            self._open[call.id] = _Open(event.call, step, datetime.now(UTC))
        self._on_progress(self._at)

    def _tell_tries(self, exchange: Exchange) -> None:
        for notice in exchange.tries:
            self._transcript.append_soon(
                Retry,
                step=self._at.step,
                try_number=notice.try_number,
                error=notice.error,
                wait_s=notice.wait_s,
                message=notice.message,
            )

    def _tell_failure(self, exchange: Exchange) -> None:
        """A call without a whole answer; whether it is asked again is the harness's to say."""
        if exchange.usage is not None:
            self._at.count(exchange.usage, exchange.cost_usd)
        self._transcript.append(
            Note,
            topic="unanswered",
            text=exchange.error or "an answer that cannot be read",
            raw={"kind": exchange.error_kind, "status": exchange.status},
        )


def _passed(exchange: Exchange, hide: Callable[[bytes], bytes]) -> Passed:
    """The facts beside the bytes, known secrets replaced."""
    usage = exchange.usage
    facts = {
        "number": exchange.number,
        "dialect": exchange.dialect,
        "path": exchange.path,
        "rewrites": list(exchange.rewrites),
        "status": exchange.status,
        "started_at": exchange.started_at.isoformat(),
        "latency_s": exchange.latency_s,
        "tries": dict(Counter(notice.error for notice in exchange.tries)),
        "usage": usage.model_dump() if usage else None,
        "cost_usd": exchange.cost_usd,
        "served_model": exchange.served_model,
        "error": exchange.error,
        "error_kind": exchange.error_kind,
    }
    same = exchange.sent == exchange.received  # kept once
    bodies = exchange.received, b"" if same else exchange.sent, exchange.response
    return Passed({**facts, "sent_as_received": same}, *map(hide, bodies))
