"""What an engine is: it runs jobs in lanes and knows nothing of cells."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Job:
    """One piece of work. Jobs of one lane (a model) never hold back those of another.

    ``run`` answers True when the job is done, False when it is not its turn now: it goes to the
    end of its lane and is tried again later.
    """

    lane: str
    name: str
    run: Callable[[], bool]


class Gate(Protocol):
    """How many jobs of a lane may run at once. Asked by one thread at a time."""

    def enter(self, lane: str) -> bool:
        """True, and counted, when one more job of the lane may start now."""
        ...

    def leave(self, lane: str) -> None:
        """A job of the lane ended."""
        ...


class Engine(Protocol):
    """Runs jobs to their end."""

    name: str

    def run(self, jobs: Sequence[Job], *, stopping: Callable[[], bool]) -> list[Exception]:
        """Run all jobs; once ``stopping`` is true start no new one. Returns what jobs raised."""
        ...
