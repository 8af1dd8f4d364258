"""Who works on which attempt of a cell: the rule that no attempt runs twice and none too many.

Under the cell's claim, which is held for a moment, an attempt is dealt: the oldest that can be gone
on with and that nobody holds, or else a new one. It is dealt only while the finished ones, those
that somebody holds, and those that this run has given up are fewer than were asked for. Holders
are looked at before finished attempts, and an attempt is sealed before it is let go: one that ends
between the two looks is counted twice, never not at all, so the number is never exceeded.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from transcripts.checks import live_damage
from transcripts.claims import Claim, held_attempts, take
from transcripts.errors import ClaimHeld
from transcripts.keys import new_id
from transcripts.records import Attempt, CellKey
from transcripts.store import Archive, AttemptFolder

_PATIENCE_S = 5.0
_AGAIN_S = 0.02


@dataclass
class _Known:
    """What this process knows of a cell."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    finished: set[str] = field(default_factory=set)  # sealed: cannot change any more
    given_up: set[str] = field(default_factory=set)  # left by this run for a later one
    ours: dict[str, Claim] = field(default_factory=dict)  # what was dealt to this process

    def settled(self, wanted: int) -> bool:
        """True when this run has nothing more to do here."""
        return len(self.finished | self.given_up) >= wanted

    def held_by_us(self) -> set[str]:
        """What this process works on; claims that were let go are forgotten."""
        self.ours = {name: claim for name, claim in self.ours.items() if not claim.is_released}
        return set(self.ours)


class Dealer:
    """Deals the attempts of cells on one archive. Threads may share it."""

    def __init__(
        self, archive: Archive, attempts: int, owner: str, say: Callable[[str], None]
    ) -> None:
        self._archive, self._attempts, self._owner, self._say = archive, attempts, owner, say
        self._cells: dict[str, _Known] = defaultdict(_Known)
        self._told: set[str] = set()  # damaged attempts that were said

    def missing(self, cell: CellKey) -> int:
        """How many finished attempts the cell lacks."""
        return max(0, self._attempts - len(self._refreshed(cell).finished))

    def give_up(self, folder: AttemptFolder) -> None:
        """This run deals the attempt no more; a later one does."""
        self._cells[folder.record.cell.id].given_up.add(folder.id)

    def deal(
        self, cell: CellKey, new: Callable[[str], Attempt]
    ) -> tuple[AttemptFolder, Claim] | None:
        """An attempt to work on and the claim on it; None when the cell needs no more.

        ``new`` makes the record of a new attempt from its id.

        Raises:
            ClaimHeld: others work on all that is missing; ask again later.
        """
        known = self._cells[cell.id]
        with known.turn:
            # Looked at without the claim first: whoever must wait asks every second.
            if known.settled(self._attempts) or self._free(cell, known) is None:
                return None
            claim = self._take_cell(cell)
            try:
                return self._deal(cell, known, new)
            finally:
                claim.release()

    def _free(self, cell: CellKey, known: _Known) -> list[AttemptFolder] | None:
        """What can be gone on with, where more is wanted of the cell; None where nothing is.

        Raises ClaimHeld.
        """
        ours = known.held_by_us()
        held = ours | held_attempts(self._archive, cell, without=ours | known.finished)
        open_ones = self._unfinished(cell, known, held)
        if known.settled(self._attempts):
            return None
        if len(known.finished | known.given_up | held) >= self._attempts:
            raise ClaimHeld(f"{cell.task} x {cell.entrant_name} is worked on by others")
        return [folder for folder in open_ones if folder.id not in known.given_up]

    def _deal(
        self, cell: CellKey, known: _Known, new: Callable[[str], Attempt]
    ) -> tuple[AttemptFolder, Claim] | None:
        free = self._free(cell, known)
        if free is None:
            return None
        for folder in filter(self._is_whole, free):
            known.ours[folder.id] = take(self._archive, cell, self._owner, folder.id)
            return folder, known.ours[folder.id]
        attempt = new(new_id())
        claim = take(self._archive, cell, self._owner, attempt.attempt_id)
        try:
            folder = self._archive.create(attempt)
            known.ours[folder.id] = claim
            return folder, claim
        except BaseException:
            claim.release()
            raise

    def _take_cell(self, cell: CellKey) -> Claim:
        """The deal takes milliseconds, so another dealer is waited for."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return take(self._archive, cell, self._owner)
            except ClaimHeld:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_S)

    def _refreshed(self, cell: CellKey) -> _Known:
        known = self._cells[cell.id]
        self._unfinished(cell, known, set())
        return known

    def _unfinished(self, cell: CellKey, known: _Known, held: set[str]) -> list[AttemptFolder]:
        """Live sessions that nobody holds, oldest first; finished ones are remembered."""
        found = []
        for folder in self._archive.cell_attempts(cell, without=known.finished | held):
            if is_finished(folder):
                known.finished.add(folder.id)
            elif not folder.is_sealed and folder.record.origin == "session":
                found.append(folder)
        return found

    def _is_whole(self, folder: AttemptFolder) -> bool:
        """Whether a session can be gone on with; damaged ones are said, once, and left."""
        damage = live_damage(folder)
        if damage and folder.id not in self._told:
            self._told.add(folder.id)
            cell = folder.record.cell
            where = f"{cell.entrant_name} x {cell.task}"
            self._say(f"{where}: {folder.id} is damaged and left: {damage[0]}")
        return not damage


def is_finished(folder: AttemptFolder) -> bool:
    """True for a sealed session whose end says something about the model."""
    record = folder.record
    return (
        folder.is_sealed
        and record.origin == "session"
        and record.outcome is not None
        and not record.outcome.end.retryable
    )
