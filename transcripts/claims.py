"""Claims: orchestrators on one archive share its work and never do one thing twice.

Two things are claimed. An **attempt** is claimed by whoever runs or grades it, for as long as that
lasts. A **cell** is claimed for a moment, by whoever deals out its attempts: under that claim it
is decided which attempt is worked on next, or that a new one begins. So attempts of one cell run
at once, and there are never more of them than were asked for (`orchestrator.dealing`).

``claims/<cell id>[/<attempt id>]/<generation>.json`` is created exclusively, so of several takers
exactly one wins. The highest generation counts. A claim that was released, or whose owner is gone,
is taken over by the next generation; the former owner notices at its next heartbeat. Who is gone
is decided by `lifesigns`, without comparing clocks. Claims are not flushed to the disk: after a
power failure no owner lives, and a claim that was lost with it is as good as taken over.
"""

import contextlib
import threading
from collections.abc import Container
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from transcripts.disk import faults, reading, write_atomic, write_exclusive
from transcripts.errors import ArchiveReadOnly, ClaimHeld, ClaimLost
from transcripts.keys import is_id
from transcripts.lifesigns import Observer, give_sign
from transcripts.records import CellKey, Record
from transcripts.store import Archive

_KEPT_GENERATIONS = 2
_OBSERVER = Observer()
"""What this process knows of other hosts' orchestrators."""


class ClaimFile(Record):
    """One generation on disk."""

    schema_version: Literal[2] = 2
    owner: str
    cell: CellKey
    attempt: str | None = None  # None: the right to deal out the cell's attempts
    taken_at: datetime
    released: bool = False

    @property
    def name(self) -> str:
        """For people."""
        part = f", attempt {self.attempt[-12:]}" if self.attempt else ""
        return f"{self.cell.task} x {self.cell.entrant_name}{part}"


class Claim:
    """A held claim. Beat it several times within `lifesigns.TTL_S`; threads may share it."""

    def __init__(self, claims: Path, folder: Path, generation: int, content: ClaimFile) -> None:
        self.generation = generation
        self._claims, self._folder = claims, folder
        self._content = content
        self._lock = threading.Lock()

    @property
    def is_released(self) -> bool:
        """True once we let it go; whether it was lost, `heartbeat` says."""
        return self._content.released

    def heartbeat(self) -> None:
        """Say that we still work on it. Ask this too before anything irreversible.

        Raises:
            ClaimLost: somebody took over; stop without writing.
        """
        with self._lock:
            self._check()
            give_sign(self._claims, self._content.owner)

    def release(self) -> None:
        """Let it go; nothing happens when it was taken over or released."""
        with self._lock, contextlib.suppress(ClaimLost):
            self._check()
            self._content = self._content.model_copy(update={"released": True})
            path = _path(self._folder, self.generation)
            write_atomic(path, _dump(self._content), durable=False)

    def _check(self) -> None:
        if self._content.released or _generations(self._folder)[-1:] != [self.generation]:
            raise ClaimLost(f"the claim on {self._content.name} was lost to another")


def take(
    archive: Archive,
    cell: CellKey,
    owner: str,
    attempt: str | None = None,
    observer: Observer = _OBSERVER,
) -> Claim:
    """Take a cell's deal or one of its attempts, over from a dead owner if need be.

    Raises:
        ClaimHeld: a live owner has it (says who), or was quicker.
    """
    if archive.read_only:
        raise ArchiveReadOnly(f"{archive.path} was opened for reading only")
    claims = archive.path / "claims"
    folder = _folder(archive, cell, attempt)
    content = ClaimFile(owner=owner, cell=cell, attempt=attempt, taken_at=datetime.now(UTC))
    latest = (_generations(folder) or [0])[-1]
    if latest and _is_held(claims, _path(folder, latest), observer):
        raise ClaimHeld(_held_by(folder, latest, content))
    give_sign(claims, owner)
    mine = latest + 1
    try:
        write_exclusive(_path(folder, mine), _dump(content), durable=False)
    except FileExistsError as error:
        raise ClaimHeld(_held_by(folder, mine, content)) from error
    newest = _generations(folder)[-1]
    if newest > mine:  # the generation had been pruned: it was only ours to take long ago
        _path(folder, mine).unlink(missing_ok=True)
        raise ClaimHeld(_held_by(folder, newest, content))
    _prune(folder, mine)
    return Claim(claims, folder, mine, content)


def holder(
    archive: Archive, cell: CellKey, attempt: str | None = None, observer: Observer = _OBSERVER
) -> str | None:
    """Who holds the cell's deal or the attempt now, None when nobody does."""
    folder = _folder(archive, cell, attempt)
    for generation in _generations(folder)[-1:]:
        path = _path(folder, generation)
        content = _load(path)
        if content is not None and _is_held(archive.path / "claims", path, observer):
            return content.owner
    return None


def held_attempts(
    archive: Archive,
    cell: CellKey,
    observer: Observer = _OBSERVER,
    *,
    without: Container[str] = (),
) -> set[str]:
    """The attempts of a cell that somebody works on now; one may be held before it is there.

    The ids ``without`` are left out unread.
    """
    folder = _folder(archive, cell, None)
    claims, held = archive.path / "claims", set()
    with faults(folder):
        names = (path for path in folder.glob("*") if path.name not in without)
        attempts = [path for path in names if is_id(path.name)]
    for path in attempts:
        newest = _generations(path)[-1:]
        if newest and _is_held(claims, _path(path, newest[0]), observer):
            held.add(path.name)
    return held


def _is_held(claims: Path, path: Path, observer: Observer) -> bool:
    content = _load(path)
    if content is not None:
        return not content.released and observer.is_alive(claims, content.owner)
    # Unreadable: whoever wrote it may live. It is free when it has not changed for a while.
    return path.exists() and observer.changed_lately(path)


def _held_by(folder: Path, generation: int, wanted: ClaimFile) -> str:
    content = _load(_path(folder, generation))
    who = f"{content.owner} since {content.taken_at:%H:%M:%S} UTC" if content else "another process"
    return f"{wanted.name} is worked on by {who}"


def _folder(archive: Archive, cell: CellKey, attempt: str | None) -> Path:
    folder = archive.path / "claims" / cell.id
    return folder / attempt if attempt else folder


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
