"""What an agent is: it drives one session to its end inside what the session gives it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from graders.base import PublicReport
from orchestrator.models.base import Conversation, ModelClient, ModelReply, ToolOutcome
from sandboxes.base import Sandbox
from tasks.spec import Task
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

    def count(self, usage: Usage, cost_usd: float | None) -> None:
        """Add one reply to the totals."""
        self.usage = self.usage + usage
        known = self.cost_usd is not None and cost_usd is not None
        self.cost_usd = (self.cost_usd or 0.0) + (cost_usd or 0.0) if known else None


class Bench(Protocol):
    """The session's `check` and `bench`, run in the orchestrator on a copy of the submission."""

    def check(self) -> PublicReport:
        """Correctness at the public shapes."""
        ...

    def bench(self) -> PublicReport:
        """Milliseconds at the public shapes."""
        ...


@dataclass
class SessionContext:
    """All that an agent has."""

    task: Task
    sandbox: Sandbox
    model: ModelClient
    transcript: TranscriptWriter
    bench: Bench
    standing: Standing
    protocol: str
    budget: Budget
    price: Callable[[Usage], float | None]
    check_stop: Callable[[], None]
    """Raises when the session must stop here; asked between steps and between tool calls."""

    on_progress: Callable[[Standing], None] = lambda _: None
    started: float = field(default_factory=time.monotonic)

    def between_steps(self) -> None:
        """Show where the session stands, and stop here when asked to."""
        self.on_progress(self.standing)
        self.check_stop()

    def cap_reached(self) -> str | None:
        """The name of the cap that is reached, None while there is room."""
        at, budget = self.standing, self.budget
        spent = {
            "steps": (budget.max_steps, at.step),
            "tokens": (budget.max_tokens, at.usage.input_tokens + at.usage.output_tokens),
            "seconds": (budget.max_seconds, at.seconds + time.monotonic() - self.started),
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

    @property
    def prompt_digest(self) -> str:
        """Digest of the agent's own instructions and tools: part of the entrant."""
        ...

    def run(self, context: SessionContext) -> Outcome:
        """Run to hand-in, stop or limit."""
        ...
