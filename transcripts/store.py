"""The archive: a folder of plans and attempts, each found by its path."""

import contextlib
import json
import os
import shutil
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, Self

from transcripts.disk import (
    faults,
    is_temporary,
    reading,
    sync_folder,
    temporary_file,
    temporary_name,
    write_atomic,
    write_exclusive,
)
from transcripts.errors import (
    ArchiveReadOnly,
    Corrupt,
    NewerFormat,
    NotAnArchive,
    UnknownAttempt,
)
from transcripts.folder import RECORD, AttemptFolder, record_bytes
from transcripts.keys import encode_name, is_id
from transcripts.records import Attempt, CellKey, canonical_json, digest_of

__all__ = ["FORMAT_VERSION", "Archive", "AttemptFolder"]

FORMAT_VERSION = 1
MARKER = "archive.json"
_CREATED_BY = "kernel-orchestrator"


class Archive:
    """A directory that holds attempts. ``problems`` says what listing had to leave out."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        self.problems: list[str] = []

    @classmethod
    def open(cls, path: Path | str, *, create: bool = False, read_only: bool = False) -> Self:
        """Open the archive at ``path``; with ``create`` make one where nothing is.

        Raises:
            NotAnArchive: nothing is there, or something else.
            NewerFormat: a newer version of this product wrote it.
            ArchiveReadOnly, ArchiveFull: it could not be created.
        """
        path = Path(path)
        if create and not read_only and _is_vacant(path):
            _create(path)
        _check_marker(path)
        return cls(path, read_only=read_only)

    def check_writable(self) -> None:
        """Find out early.

        Raises:
            ArchiveReadOnly, ArchiveFull: writing would fail.
        """
        self._refuse_read_only()
        with faults(self.path), temporary_file(self.path / MARKER) as (_, descriptor):
            os.write(descriptor, b"x")
            os.fsync(descriptor)

    # --- attempts ------------------------------------------------------------------------------

    def attempts(self) -> Iterator[AttemptFolder]:
        """All attempts by id, so by time. Those without a readable record go to ``problems``."""
        for path in sorted(self.folders(), key=lambda folder: folder.name):
            attempt = self.attempt_at(path)
            try:
                _ = attempt.record
            except Corrupt as error:
                self._report(str(error))
            else:
                yield attempt

    def find(self, wanted: str) -> AttemptFolder:
        """The attempt whose id is, starts or ends with ``wanted``.

        Raises:
            UnknownAttempt: none or several.
        """
        found = [path for path in self.folders() if path.name == wanted]
        if not found and wanted:
            found = [
                path
                for path in self.folders()
                if path.name.startswith(wanted) or path.name.endswith(wanted)
            ]
        if len(found) == 1:
            return self.attempt_at(found[0])
        if not found:
            raise UnknownAttempt(
                f"no attempt {wanted!r} in {self.path}; `status` lists those that are there"
            )
        some = ", ".join(sorted(path.name for path in found)[:3])
        raise UnknownAttempt(
            f"{len(found)} attempts match {wanted!r} ({some}, ...): say more of it"
        )

    def cell_attempts(self, cell: CellKey, *, without: Container[str] = ()) -> list[AttemptFolder]:
        """The attempts of one cell, oldest first; the ids ``without`` are left out unread."""
        folder = self.cell_folder(cell)
        with reading(folder):
            names = sorted(path.name for path in folder.glob("*") if is_id(path.name))
        paths = [folder / name for name in names if name not in without]
        found = []
        for attempt in map(self.attempt_at, paths):
            try:
                if attempt.record.cell.id == cell.id:
                    found.append(attempt)
            except Corrupt as error:
                self._report(str(error))
        return found

    def create(self, attempt: Attempt) -> AttemptFolder:
        """Make the attempt's folder with its record; it appears whole or not at all.

        Raises:
            ArchiveReadOnly, ArchiveFull: it could not be written.
        """
        self._refuse_read_only()
        if not is_id(attempt.attempt_id):
            raise ValueError(f"not an attempt id: {attempt.attempt_id!r}")
        cell_folder = self.cell_folder(attempt.cell)
        path = cell_folder / attempt.attempt_id
        building = cell_folder / temporary_name()
        with faults(path):
            try:
                building.mkdir(parents=True)
                write_atomic(building / RECORD, record_bytes(attempt))
                building.rename(path)
            finally:
                shutil.rmtree(building, ignore_errors=True)
            for parent in [cell_folder, *cell_folder.parents]:
                sync_folder(parent)
                if parent == self.path:
                    break
        return self.attempt_at(path)

    def cell_folder(self, cell: CellKey) -> Path:
        """Where the attempts of a cell are."""
        entrant = f"{encode_name(cell.entrant_name)}-{cell.entrant_digest[:8]}"
        sessions = self.path / "sessions"
        return sessions / encode_name(cell.deck) / encode_name(cell.task) / entrant

    def attempt_at(self, path: Path) -> AttemptFolder:
        """The attempt in that folder."""
        return AttemptFolder(path, read_only=self.read_only)

    def folders(self) -> Iterator[Path]:
        """The folders of all attempts, in no order; nothing in them is read."""
        waiting = [str(self.path / "sessions")]
        while waiting:
            try:
                with reading(self.path), os.scandir(waiting.pop()) as entries:
                    for entry in entries:
                        if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                            continue
                        if is_id(entry.name):
                            yield Path(entry.path)
                        else:
                            waiting.append(entry.path)
            except FileNotFoundError:
                continue

    # --- plans ---------------------------------------------------------------------------------

    def save_plan(self, plan: dict[str, Any]) -> str:
        """Keep a locked plan under the digest of its canonical JSON, which is returned."""
        self._refuse_read_only()
        digest = digest_of(plan)
        with contextlib.suppress(FileExistsError):  # the name is the content's digest
            write_exclusive(self.path / "plans" / f"{digest}.json", canonical_json(plan) + b"\n")
        return digest

    def plans(self) -> dict[str, dict[str, Any]]:
        """All intact plans by digest; broken ones go to ``problems``."""
        found = {}
        with reading(self.path):
            paths = sorted((self.path / "plans").glob("*.json"))
        for path in paths:
            plan = _load_json(path)
            if isinstance(plan, dict) and digest_of(plan) == path.stem:
                found[path.stem] = plan
            else:
                self._report(f"{path}: not the plan that its name says")
        return found

    def _refuse_read_only(self) -> None:
        if self.read_only:
            raise ArchiveReadOnly(f"{self.path} was opened for reading only")

    def _report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _create(path: Path) -> None:
    document = {"format_version": FORMAT_VERSION, "created_by": _CREATED_BY}
    with faults(path):
        path.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):  # another process created it at the same moment
        write_exclusive(path / MARKER, json.dumps(document, indent=1).encode() + b"\n")


def _is_vacant(path: Path) -> bool:
    """Nothing is there, or an empty folder; a file being written is another creator's marker."""
    if not path.exists():
        return True
    return path.is_dir() and all(is_temporary(entry.name) for entry in path.iterdir())


def _check_marker(path: Path) -> None:
    if not path.exists():
        raise NotAnArchive(f"{path} does not exist; `sweep --archive {path}` makes it")
    document = _load_json(path / MARKER) if path.is_dir() else None
    version = document.get("format_version") if isinstance(document, dict) else None
    if not isinstance(version, int):
        raise NotAnArchive(
            f"{path} is not an archive (no readable {MARKER} in it); "
            "name an archive, or an empty or new folder"
        )
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"{path} has archive format {version}, this version reads up to {FORMAT_VERSION}; "
            "use the newer version that wrote it"
        )


def _load_json(path: Path) -> Any:
    try:
        with reading(path):
            return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
