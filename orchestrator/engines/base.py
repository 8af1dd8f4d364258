"""What an engine is: it runs jobs in lanes and knows nothing of cells."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Job:
    """One piece of work. Jobs of one lane (a model) never hold back those of another."""

    lane: str
    name: str
    run: Callable[[], None]


class Engine(Protocol):
    """Runs jobs to their end."""

    name: str

    def run(self, jobs: Sequence[Job], *, stopping: Callable[[], bool]) -> list[Exception]:
        """Run all jobs; once ``stopping`` is true start no new one. Returns what jobs raised."""
        ...
