"""What a sweep has spent, earlier runs included, and what the rest of it may cost."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from transcripts.errors import ArchiveError
from transcripts.events import Reply
from transcripts.records import CellKey
from transcripts.store import AttemptFolder


def spent_usd(folder: AttemptFolder) -> float | None:
    """USD of one attempt so far; None when a part of it is unknown.

    A live session's total is not in its record yet: its replies are added up.
    """
    if folder.is_sealed:
        return folder.record.cost_usd
    total = 0.0
    for event in folder.events():
        if isinstance(event, Reply):
            if event.cost_usd is None:
                return None
            total += event.cost_usd
    return total


class Purse:
    """The running total of a sweep against its cap, if it has one. Threads share it."""

    def __init__(self, cap_usd: float | None = None) -> None:
        self.cap_usd = cap_usd
        self._spent: dict[str, float | None] = {}
        self._lock = threading.Lock()

    def remember(self, folders: Iterable[AttemptFolder]) -> None:
        """Take in what attempts of earlier runs, or of other orchestrators, have cost."""
        for folder in folders:
            try:
                self.note(folder.id, spent_usd(folder))
            except ArchiveError:
                self.note(folder.id, None)

    def note(self, attempt: str, total_usd: float | None) -> None:
        """An attempt has cost this much in all; None is unknown."""
        with self._lock:
            self._spent[attempt] = total_usd

    @property
    def total_usd(self) -> float:
        """All that is known."""
        with self._lock:
            return sum(cost for cost in self._spent.values() if cost is not None)

    @property
    def unknown(self) -> int:
        """Attempts with costs that are not in the total."""
        with self._lock:
            return sum(cost is None for cost in self._spent.values())

    @property
    def is_empty(self) -> bool:
        """True once nothing new may be started."""
        return self.cap_usd is not None and self.total_usd >= self.cap_usd


@dataclass
class Estimate:
    """What the missing attempts of a sweep may cost, from what is in the archive."""

    usd: float = 0.0
    priced: int = 0  # attempts that the figure covers
    seen: int = 0  # finished attempts that it rests on
    without_history: list[str] = field(default_factory=list)  # entrants, each once

    def describe(self) -> str:
        """For people; empty when nothing is missing."""
        words = []
        if self.priced:
            words.append(f"about ${self.usd:.2f} for {self.priced} (from {self.seen} earlier ones)")
        if self.without_history:
            words.append(f"no history of {', '.join(self.without_history)}")
        return "; ".join(words)


def estimate(missing: Sequence[tuple[CellKey, int]], finished: Sequence[AttemptFolder]) -> Estimate:
    """The cost of ``missing`` (cell, attempts) by the mean of the cell, else of its entrant."""
    by_cell: dict[str, list[float]] = {}
    by_entrant: dict[str, list[float]] = {}
    for folder in finished:
        cost, cell = folder.record.cost_usd, folder.record.cell
        if cost is not None:
            by_cell.setdefault(cell.id, []).append(cost)
            by_entrant.setdefault(cell.entrant_digest, []).append(cost)
    found = Estimate(seen=sum(map(len, by_cell.values())))
    for cell, attempts in missing:
        costs = by_cell.get(cell.id) or by_entrant.get(cell.entrant_digest)
        if costs:
            found.usd += attempts * sum(costs) / len(costs)
            found.priced += attempts
        elif attempts and cell.entrant_name not in found.without_history:
            found.without_history.append(cell.entrant_name)
    return found
