"""What an agent is: it drives one session to its end inside what the session gives it."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from graders.base import PublicReport
from orchestrator.agents.context import Gauge, apply
from orchestrator.agents.watchdogs import REPEATED, Repetition, Word
from orchestrator.models.base import (
    Conversation,
    ModelClient,
    ModelReply,
    ToolOutcome,
    ToolTurn,
    UserTurn,
)
from orchestrator.models.entry import ModelEntry
from orchestrator.turns.turns import Ticket
from sandboxes.base import Sandbox, SandboxSpec
from tasks.spec import Task
from transcripts.events import Compaction, ToolResult
from transcripts.records import Budget, Outcome, Usage
from transcripts.writer import TranscriptWriter


@dataclass
class Standing:
    """Where a session stands: a fresh one at nothing, a resumed one at its last finished step."""

    conversation: Conversation
    step: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0  # None once a part of it is unknown
    seconds: float = 0.0  # spent before this process took over
    open_reply: ModelReply | None = None  # the last reply, where it still waits for answers
    answered: list[ToolOutcome] = field(default_factory=list)  # its calls', in their order
    silent_replies: int = 0  # replies in a row that called no tool
    opening: str = ""  # the task's words, which every compaction keeps
    gauge: Gauge = field(default_factory=Gauge)
    repetition: Repetition = field(default_factory=Repetition)
    call_seconds: float = 0.0  # of the last reply's calls so far
    reports: dict[str, str] = field(default_factory=dict)  # the last words of check and bench
    summary: ModelReply | None = None  # paid for, and not yet in the conversation
    strangers: set[str] = field(default_factory=set)  # models that answered and were not asked

    def count(self, usage: Usage, cost_usd: float | None) -> None:
        """Add one reply to the totals."""
        self.usage = self.usage + usage
        known = self.cost_usd is not None and cost_usd is not None
        self.cost_usd = (self.cost_usd or 0.0) + (cost_usd or 0.0) if known else None

    def finished(self, call: ToolResult) -> None:
        """A call of the open reply has its result."""
        self.answered.append(ToolOutcome(call.call_id, call.text, call.status != "ok"))
        self.call_seconds += call.duration_s
        if call.name in ("check", "bench"):
            self.reports[call.name] = call.text

    def close(self, reply: ModelReply) -> Word:
        """The reply got its answers: it is part of the conversation; says whether it repeats."""
        answers, self.answered = tuple(self.answered), []
        seconds, self.call_seconds = self.call_seconds, 0.0
        self.conversation.turns.append(reply)
        if reply.tool_calls:
            self.silent_replies = 0
            self.conversation.turns.append(ToolTurn(answers))
        elif reply.stop_reason != "length":
            self.silent_replies += 1
        return self.repetition.observe(reply, answers, seconds)

    def say(self, text: str) -> None:
        """The harness or the user said something."""
        self.repetition.told = self.repetition.told or text == REPEATED
        self.conversation.turns.append(UserTurn(text))

    def compacted(self, event: Compaction) -> None:
        """Shorten the conversation as recorded."""
        apply(self.conversation, self.opening, event)
        self.gauge.recount()
        self.gauge.room = event.room_tokens
        if event.method != "elide":
            self.summary = None


class Bench(Protocol):
    """The session's `check` and `bench`, run in the orchestrator on a copy of the submission."""

    def check(self) -> PublicReport:
        """Correctness at the public shapes."""
        ...

    def bench(self, wait_by: Callable[[Ticket], None] = lambda _: None) -> PublicReport:
        """Milliseconds at the public shapes; ``wait_by`` is told by which ticket it waits."""
        ...

    def digest(self) -> str:
        """Of the submission as it is now."""
        ...


@dataclass
class SessionContext:
    """All that an agent has."""

    task: Task
    sandbox: Sandbox
    entry: ModelEntry
    connect: Callable[[], ModelClient]
    """A client of the entry's model, for agents that ask it themselves; they close it."""

    transcript: TranscriptWriter
    folder: Path  # of the attempt, for what is archived beside the transcript
    bench: Bench
    standing: Standing
    budget: Budget
    check_stop: Callable[[], None]
    """Raises when the session must stop here; asked between steps and between tool calls."""

    on_progress: Callable[[Standing], None] = lambda _: None
    started: float = field(default_factory=time.monotonic)

    def between_steps(self) -> None:
        """Show where the session stands, and stop here when asked to."""
        self.on_progress(self.standing)
        self.check_stop()

    def seconds_left(self) -> float:
        """Seconds until the cap of time; infinite where there is none."""
        cap = self.budget.max_seconds
        return math.inf if cap is None else cap - self._seconds()

    def _seconds(self) -> float:
        return self.standing.seconds + time.monotonic() - self.started

    def cap_reached(self) -> str | None:
        """The name of the cap that is reached, None while there is room."""
        at, budget = self.standing, self.budget
        spent = {
            "steps": (budget.max_steps, at.step),
            "tokens": (budget.max_tokens, at.usage.input_tokens + at.usage.output_tokens),
            "seconds": (budget.max_seconds, self._seconds()),
            "cost": (budget.max_cost_usd, at.cost_usd),
        }
        for name, (cap, amount) in spent.items():
            if cap is not None and amount is not None and amount >= cap:
                return name
        return None


class Agent(Protocol):
    """Drives a session. Errors of model and sandbox pass through; `faults` makes them outcomes."""

    name: str
    version: str
    system_prompt: str
    resumable: bool
    """Whether a session of a dead orchestrator goes on at its last finished step."""

    @property
    def prompt_digest(self) -> str:
        """Digest of the agent's own instructions and tools: part of the entrant."""
        ...

    @property
    def versions(self) -> Mapping[str, str]:
        """Names and versions of what it runs, for the fingerprint."""
        ...

    def opening(self, request: str) -> str:
        """The first words of the user, from what is asked."""
        ...

    def fitted(self, spec: SandboxSpec) -> SandboxSpec:
        """The sandbox that it needs: ``spec`` and what it adds."""
        ...

    def run(self, context: SessionContext) -> Outcome:
        """Run to hand-in, stop or limit."""
        ...
