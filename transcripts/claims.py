"""Claims: two orchestrators on one archive share its cells and never work on one twice.

``claims/<cell id>/<generation>.json`` is created exclusively, so of several takers exactly one
wins. The highest generation counts. A claim that was released, has expired, or whose owner is a
process of this host that is gone, is taken over by the next generation; the former owner notices
at its next heartbeat. Expiry compares the wall clocks of two hosts: keep them within the time to
live of each other (NTP does).
"""

import contextlib
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from transcripts.disk import faults, reading, write_atomic, write_exclusive
from transcripts.errors import ArchiveReadOnly, ClaimHeld, ClaimLost
from transcripts.owner import is_live
from transcripts.records import CellKey, Record
from transcripts.store import Archive

TTL_S = 60.0
_KEPT_GENERATIONS = 2


class ClaimFile(Record):
    """One generation on disk."""

    schema_version: Literal[1] = 1
    owner: str
    cell: CellKey
    taken_at: datetime
    beat_at: datetime
    ttl_s: float
    released: bool = False

    def is_free(self, now: datetime) -> bool:
        """True when the next generation may be taken."""
        expired = now > self.beat_at + timedelta(seconds=self.ttl_s)
        return self.released or expired or not is_live(self.owner)


class Claim:
    """A held claim. Beat it several times within its time to live; threads may share it."""

    def __init__(self, folder: Path, generation: int, content: ClaimFile) -> None:
        self.generation = generation
        self._folder = folder
        self._content = content
        self._lock = threading.Lock()

    def heartbeat(self) -> None:
        """Say that we still work on it. Ask this too before anything irreversible.

        Raises:
            ClaimLost: somebody took over; stop without writing.
        """
        with self._lock:
            self._check()
            self._rewrite(beat_at=datetime.now(UTC))

    def release(self) -> None:
        """Let the cell go; nothing happens when it was taken over or released."""
        with self._lock, contextlib.suppress(ClaimLost):
            self._check()
            self._rewrite(released=True)

    def _check(self) -> None:
        if self._content.released or _generations(self._folder)[-1:] != [self.generation]:
            cell = self._content.cell
            raise ClaimLost(f"the claim on {cell.task} x {cell.entrant_name} was lost to another")

    def _rewrite(self, **changes: object) -> None:
        self._content = self._content.model_copy(update=changes)
        write_atomic(_path(self._folder, self.generation), _dump(self._content))


def take(archive: Archive, cell: CellKey, owner: str, ttl_s: float = TTL_S) -> Claim:
    """Take the cell, over from a dead or expired owner if need be.

    Raises:
        ClaimHeld: a live owner has it (says who), or was quicker.
    """
    if archive.read_only:
        raise ArchiveReadOnly(f"{archive.path} was opened for reading only")
    folder = archive.path / "claims" / cell.id
    latest = (_generations(folder) or [0])[-1]
    if latest:
        _refuse_held(folder, latest, cell)
    now = datetime.now(UTC)
    content = ClaimFile(owner=owner, cell=cell, taken_at=now, beat_at=now, ttl_s=ttl_s)
    mine = latest + 1
    try:
        write_exclusive(_path(folder, mine), _dump(content))
    except FileExistsError as error:
        raise ClaimHeld(_held_by(folder, mine, cell)) from error
    newest = _generations(folder)[-1]
    if newest > mine:  # the generation had been pruned: it was only ours to take long ago
        _path(folder, mine).unlink(missing_ok=True)
        raise ClaimHeld(_held_by(folder, newest, cell))
    _prune(folder, mine)
    return Claim(folder, mine, content)


def holder(archive: Archive, cell: CellKey) -> str | None:
    """Who works on the cell now, None when nobody does."""
    folder = archive.path / "claims" / cell.id
    for generation in _generations(folder)[-1:]:
        content = _load(_path(folder, generation))
        if content is not None and not content.is_free(datetime.now(UTC)):
            return content.owner
    return None


def _refuse_held(folder: Path, generation: int, cell: CellKey) -> None:
    path = _path(folder, generation)
    content = _load(path)
    now = datetime.now(UTC)
    if content is not None and not content.is_free(now):
        raise ClaimHeld(_held_by(folder, generation, cell))
    if content is None and path.exists():
        # Unreadable: whoever wrote it may live. It is free when it has not changed for a while.
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        if now < changed + timedelta(seconds=TTL_S):
            raise ClaimHeld(_held_by(folder, generation, cell))


def _held_by(folder: Path, generation: int, cell: CellKey) -> str:
    content = _load(_path(folder, generation))
    who = f"{content.owner} since {content.taken_at:%H:%M:%S} UTC" if content else "another process"
    return f"{cell.task} x {cell.entrant_name} is worked on by {who}"


def _generations(folder: Path) -> list[int]:
    with faults(folder):
        return sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit())


def _prune(folder: Path, newest: int) -> None:
    for generation in _generations(folder):
        if generation <= newest - _KEPT_GENERATIONS:
            with faults(folder):
                _path(folder, generation).unlink(missing_ok=True)


def _path(folder: Path, generation: int) -> Path:
    return folder / f"{generation}.json"


def _dump(content: ClaimFile) -> bytes:
    return content.model_dump_json().encode() + b"\n"


def _load(path: Path) -> ClaimFile | None:
    try:
        with reading(path):
            return ClaimFile.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
