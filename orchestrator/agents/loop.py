"""Our own agent: ask, execute, record, until the model hands in or stops.

No caps unless the budget asks for them. Every mistake of the model (an unknown tool, broken
arguments, an empty or cut reply) is answered in words and never ends the session by itself.
"""

import time

from orchestrator.agents.base import SessionContext
from orchestrator.agents.tools import ToolAnswer, Toolbox, tool_specs
from orchestrator.models.base import (
    ModelReply,
    RetryNotice,
    ToolOutcome,
    ToolSpec,
    ToolTurn,
    UserTurn,
)
from transcripts.events import (
    BenchRun,
    CheckRun,
    Reply,
    Request,
    Retry,
    ToolCall,
    ToolCallStarted,
    ToolResult,
    UserMessage,
)
from transcripts.records import Outcome, digest_of
from transcripts.words import End

SYSTEM_PROMPT = """\
You work alone in a sandboxed Linux workspace, through the tools that you are given. There is no
network. The workspace holds the material of the request below it. Write your solution there,
check it, measure it, improve it for as long as it is worth it, and call `submit` when you are
done: what is in the workspace then is what you hand in.
"""

NUDGE = (
    "No tool was called. If you are done, call `submit`; to end without handing in anything more, "
    "answer once more without a tool call."
)
CUT = "Your answer was cut by its length limit. Go on in smaller steps."
EMPTY = "Your answer was empty. Go on, or call `submit` when you are done."


class LoopAgent:
    """The built-in agent."""

    name = "loop"
    version = "1"
    system_prompt = SYSTEM_PROMPT

    @property
    def prompt_digest(self) -> str:
        """Digest of the system prompt, the tools and the harness's own phrases."""
        tools = [[tool.name, tool.description, tool.parameters] for tool in tool_specs()]
        return digest_of([SYSTEM_PROMPT, NUDGE, CUT, EMPTY, tools])

    def run(self, context: SessionContext) -> Outcome:
        """Run to hand-in, stop or limit; see `Agent.run`."""
        return _Session(context).run()


class _Session:
    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._at = context.standing
        self._toolbox = Toolbox(context.sandbox, context.bench, context.task.interface.file)
        self._tools: list[ToolSpec] = tool_specs()

    def run(self) -> Outcome:
        outcome = self._react(self._at.open_reply) if self._at.open_reply else None
        while outcome is None:
            self._context.between_steps()
            cap = self._context.cap_reached()
            if cap:
                return Outcome(end=End.LIMIT, reason=cap)
            outcome = self._react(self._ask())
        return outcome

    def _react(self, reply: ModelReply) -> Outcome | None:
        self._at.conversation.turns.append(reply)
        if not reply.tool_calls:
            return self._without_tools(reply)
        self._at.silent_replies = 0
        return self._answer(reply)

    def _ask(self) -> ModelReply:
        context, at, transcript = self._context, self._at, self._context.transcript
        transcript.append(
            Request, step=at.step, messages=len(at.conversation.turns), protocol=context.protocol
        )
        reply = context.model.reply(at.conversation, self._tools, self._log_retry)
        cost = context.price(reply.usage)
        transcript.append(
            Reply,
            step=at.step,
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
        at.step += 1
        return reply

    def _log_retry(self, notice: RetryNotice) -> None:
        self._context.transcript.append(
            Retry,
            step=self._at.step,
            try_number=notice.try_number,
            error=notice.error,
            wait_s=notice.wait_s,
            message=notice.message,
        )

    def _without_tools(self, reply: ModelReply) -> Outcome | None:
        """Answer a reply that called nothing; two in a row are the model's way to stop."""
        if reply.stop_reason == "length":
            self._say(CUT)
            return None
        self._at.silent_replies += 1
        is_empty = not reply.text.strip()
        if self._at.silent_replies > (_MOST_EMPTY if is_empty else 1):
            return _STOPPED
        self._say(EMPTY if is_empty else NUDGE)
        return None

    def _say(self, text: str) -> None:
        self._context.transcript.append(UserMessage, text=text, author="harness")
        self._at.conversation.turns.append(UserTurn(text))

    def _answer(self, reply: ModelReply) -> Outcome | None:
        """Execute the calls that have no answer yet, in order."""
        results, self._at.answered = self._at.answered, []
        for position, call in enumerate(reply.tool_calls):
            if position == len(results):
                self._context.check_stop()
                results.append(self._execute(call))
            result = results[position]
            if call.name == "submit" and not result.is_error:
                return Outcome(end=End.SUBMITTED)
        self._at.conversation.turns.append(ToolTurn(tuple(results)))
        return None

    def _execute(self, call: ToolCall) -> ToolOutcome:
        transcript, step = self._context.transcript, self._at.step - 1
        transcript.append(ToolCallStarted, step=step, call=call)
        started = time.monotonic()
        answer = self._toolbox.run(call)
        self._log_report(call, answer, step)
        shown, blob = transcript.put_text(answer.text)
        transcript.append(
            ToolResult,
            step=step,
            call_id=call.id,
            name=call.name,
            status=answer.status,
            text=shown,
            exit_code=answer.exit_code,
            duration_s=round(time.monotonic() - started, 6),
            blob=blob,
        )
        return ToolOutcome(call.id, shown, answer.status != "ok")

    def _log_report(self, call: ToolCall, answer: ToolAnswer, step: int) -> None:
        report, append = answer.report, self._context.transcript.append
        if report is None:
            return
        if call.name == "check":
            append(CheckRun, step=step, passed=report.passed, result=report.result)
        else:
            append(
                BenchRun,
                step=step,
                median_ms=report.median_ms,
                device=report.device,
                waited_s=report.waited_s,
                used_mib_before=report.used_mib_before,
            )


_MOST_EMPTY = 5
"""Empty replies in a row that are answered; a model that says nothing at all has stopped."""

_STOPPED = Outcome(end=End.NO_SUBMISSION, reason="stopped")
"""The model stopped; the session decides from the workspace whether that is a hand-in."""
