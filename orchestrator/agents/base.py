"""What an agent is: it drives one session to its end inside what the session gives it."""

from dataclasses import dataclass
from typing import Protocol

from transcripts.writer import TranscriptWriter

from graders.base import PublicReport
from orchestrator.models.base import Conversation, ModelClient
from sandboxes.base import Sandbox
from tasks.spec import Task
from transcripts.records import Budget, Outcome


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
    """All that an agent has. ``stopping`` is asked between steps: True means seal as resumable."""

    task: Task
    sandbox: Sandbox
    model: ModelClient
    transcript: TranscriptWriter
    bench: Bench
    budget: Budget
    conversation: Conversation
    step: int  # number of the next step; above 0 when resumed


class Agent(Protocol):
    """Drives a session. Errors of model and sandbox pass through; `faults` makes them outcomes."""

    name: str
    version: str

    @property
    def prompt_digest(self) -> str:
        """Digest of the agent's own instructions and tools: part of the entrant."""
        ...

    def run(self, context: SessionContext) -> Outcome:
        """Run to hand-in, stop or limit."""
        ...
