"""What a grader is asked, and the public report that a session sees."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from tasks.spec import Task
from transcripts.records import Grade


@dataclass(frozen=True)
class GradeRequest:
    """One submission to grade. ``submission`` is a folder that only the caller can write."""

    task: Task
    submission: Path
    mode: Literal["in_run", "isolated"] = "in_run"
    tier: Literal["quick", "full"] = "full"
    isolation: str = "auto"  # "bubblewrap", "process" (on request, marked), or "auto"
    device: str = "cpu"  # "cpu", a GPU's UUID, or "cuda" where there is one GPU only
    seed: str | None = None  # of the plan of cases; None draws a secret one
    attempt_id: str | None = None
    attempt_seal: str | None = None
    correctness_only: bool = False
    shown_as: str = ""  # what a person calls the submission, where the folder is a copy
    only: str = ""  # "GROUP" or "GROUP/SHAPE": these cases alone, no probes, no timing


@dataclass(frozen=True)
class PublicReport:
    """What `check` or `bench` tell a session: public shapes and seeds only."""

    passed: bool
    result: str  # a word of GradeResult
    text: str  # for the agent
    median_ms: dict[str, float] = field(default_factory=dict)  # bench only
    # Of the turn on a GPU, filled in by whoever took it:
    device: str = "cpu"
    waited_s: float = 0.0
    used_mib_before: int | None = None  # of the device, by those that stood still


class Grader(Protocol):
    """Grades one submission. Raises nothing: what it does, and what fails here, is in the grade."""

    def prepare(self, request: GradeRequest) -> Any:
        """Do what may be done while another submission is measured; `grade` takes the result.

        It has a ``close()`` for when nobody will.
        """
        ...

    def grade(self, request: GradeRequest, prepared: Any = None) -> Grade:
        """Measure. Our own failures are `void` grades."""
        ...

    def check(self, request: GradeRequest) -> PublicReport:
        """Run the public part: smoke and scored shapes at public seeds."""
        ...

    def bench(self, request: GradeRequest) -> PublicReport:
        """Time the public shapes."""
        ...
