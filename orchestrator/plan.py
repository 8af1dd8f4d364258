"""A plan: models x tasks x attempts, resolved to digests before anything runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from orchestrator.models.entry import ModelEntry
from tasks.spec import Task
from transcripts.records import CellKey, Entrant, Record


class SweepPlan(Record):
    """What a sweep will do, locked: stored in the archive under its digest."""

    schema_version: Literal[1] = 1
    product_version: str
    deck: str
    task_digests: dict[str, str]
    entrants: tuple[Entrant, ...]
    attempts: int
    agent: str
    engine: str
    sandbox: str
    tier: Literal["quick", "full"]


@dataclass(frozen=True)
class PlannedCell:
    """One cell with what is needed to run it."""

    key: CellKey
    task: Task
    model: ModelEntry
    entrant: Entrant

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.entrant.name} x {self.task.name}"


def cell_key(deck: str, task: Task, entrant: Entrant) -> CellKey:
    """The identity of one square of the grid."""
    return CellKey(
        deck=deck,
        task=task.name,
        task_digest=task.digest,
        entrant_name=entrant.name,
        entrant_digest=entrant.digest,
    )


def expand(
    deck: str, tasks: Sequence[Task], entrants: Sequence[tuple[ModelEntry, Entrant]]
) -> list[PlannedCell]:
    """All cells, models interleaved fairly: each model's first task before any model's second."""
    lanes = [
        [PlannedCell(cell_key(deck, task, entrant), task, model, entrant) for task in tasks]
        for model, entrant in entrants
    ]
    return list(_interleave(lanes))


def _interleave(lanes: Sequence[Sequence[PlannedCell]]) -> Iterator[PlannedCell]:
    for rank in zip_longest(*lanes):
        yield from (cell for cell in rank if cell is not None)
