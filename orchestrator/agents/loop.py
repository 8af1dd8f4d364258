"""Our own agent: ask, execute, record, until the model hands in or stops.

No caps unless the budget asks for them, and no end of the window: a full one is compacted. Every
mistake of the model (an unknown tool, broken arguments, an empty or cut reply) is answered in words
and never ends the session by itself; only doing the same again and again does.
"""

import time
from collections.abc import Mapping
from contextlib import closing

from orchestrator.agents import compaction, context, watchdogs
from orchestrator.agents.asking import Asker
from orchestrator.agents.base import SessionContext
from orchestrator.agents.compaction import Compactor
from orchestrator.agents.context import prompt_room
from orchestrator.agents.reports import log_report
from orchestrator.agents.tools import Toolbox, tool_specs
from orchestrator.agents.watchdogs import REPEATED, Word
from orchestrator.models.base import ModelClient, ModelReply
from orchestrator.models.errors import ContextOverflow
from sandboxes.base import SandboxSpec
from transcripts.events import ToolCall, ToolCallStarted, ToolResult, UserMessage
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
    version = "2"
    system_prompt = SYSTEM_PROMPT
    resumable = True
    versions: Mapping[str, str] = {}

    @property
    def prompt_digest(self) -> str:
        """Digest of the system prompt, the tools, the harness's own phrases and its rules."""
        tools = [[tool.name, tool.description, tool.parameters] for tool in tool_specs()]
        return digest_of([SYSTEM_PROMPT, NUDGE, CUT, EMPTY, tools, _COMPACTION, _REPETITION])

    def opening(self, request: str) -> str:
        """See `Agent.opening`."""
        return request

    def fitted(self, spec: SandboxSpec) -> SandboxSpec:
        """See `Agent.fitted`."""
        return spec

    def run(self, context: SessionContext) -> Outcome:
        """Run to hand-in, stop or limit; see `Agent.run`."""
        with closing(context.connect()) as model:
            return _Session(context, model).run()


class _Session:
    def __init__(self, context: SessionContext, model: ModelClient) -> None:
        self._context = context
        self._at = context.standing
        self._toolbox = Toolbox(
            context.sandbox, context.bench, context.task.interface.file, context.seconds_left
        )
        self._asker = Asker(context, model, tool_specs())
        self._compactor = Compactor(context, self._asker)
        self._at.gauge.limit(prompt_room(context.entry))

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
        return self._answer(reply) if reply.tool_calls else self._without_tools(reply)

    def _ask(self) -> ModelReply:
        """The next reply; a conversation that does not fit is shortened until it does.

        Raises ContextOverflow when the task and the last step alone do not fit.
        """
        self._compactor.make_room()
        while True:
            try:
                reply = self._asker.ask(self._at.conversation)
            except ContextOverflow:
                if not self._compactor.after_overflow():
                    raise
            else:
                self._at.gauge.observe(self._at.conversation.turns, reply.usage)
                self._compactor.answered()
                self._at.step += 1
                return reply

    def _without_tools(self, reply: ModelReply) -> Outcome | None:
        """Answer a reply that called nothing; two in a row are the model's way to stop."""
        word = self._at.close(reply)
        if reply.stop_reason == "length":
            self._say(CUT)
            return self._repeats(word)
        is_empty = not reply.text.strip()
        if self._at.silent_replies > (_MOST_EMPTY if is_empty else 1):
            return _STOPPED
        self._say(EMPTY if is_empty else NUDGE)
        return None

    def _say(self, text: str) -> None:
        event = self._context.transcript.append(UserMessage, text=text, author="harness")
        self._at.say(event.text)

    def _answer(self, reply: ModelReply) -> Outcome | None:
        """Execute the calls that have no answer yet, in order."""
        answered = self._at.answered
        for position, call in enumerate(reply.tool_calls):
            if position == len(answered):
                self._context.check_stop()
                self._execute(call)
            if call.name == "submit" and not answered[position].is_error:
                return Outcome(end=End.SUBMITTED)
        return self._repeats(self._at.close(reply))

    def _repeats(self, word: Word) -> Outcome | None:
        """What follows from the watchdog's word: it is told once, then it is the end."""
        if word == "tell":
            self._say(REPEATED)
        return _REPEATS if word == "end" else None

    def _execute(self, call: ToolCall) -> None:
        transcript, step = self._context.transcript, self._at.step - 1
        transcript.append(ToolCallStarted, step=step, call=call)
        started = time.monotonic()
        answer = self._toolbox.run(call)
        if answer.report is not None:
            log_report(transcript, call.name, answer.report, step)
        shown, blob = transcript.put_text(answer.text)
        result = transcript.append(
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
        self._at.finished(result)


_MOST_EMPTY = 5
"""Empty replies in a row that are answered; a model that says nothing at all has stopped."""

_STOPPED = Outcome(end=End.NO_SUBMISSION, reason="stopped")
"""The model stopped; the session decides from the workspace whether that is a hand-in."""

_REPEATS = Outcome(
    end=End.LIMIT,
    reason="repetition",
    message="the same calls with the same results again and again, after it was told",
)

_COMPACTION = [
    *(compaction.SUMMARISE, compaction.BEFORE, compaction.MECHANICAL, compaction.STATE),
    *(compaction.FULL, compaction.ENOUGH_ELIDED, compaction.KEPT, compaction.SUMMARY_SHARE),
    context.LONG_RESULT,
]
_REPETITION = [
    *(watchdogs.REPEATED, watchdogs.TELL_AT, watchdogs.END_AT),
    *(watchdogs.WAITED_S, watchdogs.WAIT_WEIGHT),
]
