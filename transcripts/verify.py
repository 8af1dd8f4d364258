"""Checking a whole archive, and rebuilding what follows from what is intact."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transcripts import frames, sealing
from transcripts.checks import attempt_problems
from transcripts.disk import faults, is_temporary, remove_tree, write_atomic
from transcripts.errors import ArchiveError
from transcripts.folder import AttemptFolder
from transcripts.keys import is_id
from transcripts.lifesigns import dead_signs
from transcripts.store import Archive

STRAY_AFTER_S = 3600.0
"""Age above which a temporary file is a leftover: no write here takes an hour."""

_CLOSED_TO_SWEEPING = frozenset({sealing.WORKSPACE, sealing.SUBMISSION})


@dataclass(frozen=True)
class Problem:
    """One thing that does not verify."""

    place: str  # relative to the archive
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


def verify(archive: Archive) -> list[Problem]:
    """Check plans, records, chains, seals, indexes, blobs, grades and audits."""
    problems = _plan_problems(archive)
    for path in sorted(archive.folders(), key=lambda folder: folder.name):
        place = str(path.relative_to(archive.path))
        attempt = AttemptFolder(path, read_only=True)
        problems += [Problem(place, what) for what in attempt_problems(attempt)]
    problems += [
        Problem(str(path.relative_to(archive.path)), "left by a writer that was killed")
        for path in _strays(archive)
    ]
    return problems


def repair(archive: Archive) -> list[str]:
    """Rebuild lost indexes, set torn tails aside, remove what killed writers left. Never guesses.

    Returns what was done, in words; ask ``verify`` for what remains.
    """
    done = sweep_scratch(archive)
    for path in sorted(archive.folders(), key=lambda folder: folder.name):
        done += [f"{path.name}: {what}" for what in _repair_attempt(archive.attempt_at(path))]
    return done


def sweep_scratch(archive: Archive) -> list[str]:
    """Remove what killed writers left half written; returns a line for each thing removed.

    What an attempt has under ``submission/`` or in its workspace is never touched, nor anything
    that a seal covers, nor torn lines that were set aside.

    Raises:
        ArchiveReadOnly, ArchiveFull: the archive cannot be written.
    """
    archive.check_writable()
    done = []
    for path in _strays(archive):
        with faults(path):
            remove_tree(path)
        done.append(f"{path.relative_to(archive.path)}: removed, left by a writer that was killed")
    for path in dead_signs(archive.path / "claims"):
        path.unlink(missing_ok=True)  # nobody misses them: not worth a line
    return done


def _repair_attempt(attempt: AttemptFolder) -> list[str]:
    try:
        if attempt.is_sealed:
            return _repair_index(attempt)
        with attempt.open_writer("archive repair") as writer:
            return [writer.repaired] if writer.repaired else []
    except (ArchiveError, OSError):
        return []  # being written, or broken beyond what can be rebuilt: `verify` says it


def _repair_index(attempt: AttemptFolder) -> list[str]:
    """Write the index again where it is not what the frames give, if the seal confirms it."""
    rebuilt = frames.dump_index(frames.rebuild_index(attempt.path / sealing.PACKED_TRANSCRIPT))
    place = attempt.path / sealing.INDEX
    if place.exists() and place.read_bytes() == rebuilt:
        return []
    write_atomic(place, rebuilt)
    found = attempt.load_seal()
    if found and found[0].files.get(sealing.INDEX) != sealing.file_digest(place):
        return [f"{sealing.INDEX} rebuilt, but it is not the sealed one: the transcript changed"]
    return [f"{sealing.INDEX} rebuilt"]


def _plan_problems(archive: Archive) -> list[Problem]:
    reader = Archive(archive.path, read_only=True)
    reader.plans()
    return [Problem("plans", what) for what in reader.problems]


def _strays(archive: Archive) -> list[Path]:
    """What killed writers left; a younger one may still be being written.

    The age is that of the last change of the inode: a copy in the making has its source's times.
    """
    oldest = time.time() - STRAY_AFTER_S
    return sorted(path for path in _temporaries(archive.path) if _changed(path) < oldest)


def _temporaries(root: Path) -> Iterator[Path]:
    """Our temporary files and folders, looked for where no agent chooses the names."""
    for parent, folders, files in os.walk(root):
        here = Path(parent)
        yield from (here / name for name in (*folders, *files) if is_temporary(name))
        closed = _CLOSED_TO_SWEEPING if is_id(here.name) else frozenset()
        if (here / sealing.SEAL).exists():
            closed |= {sealing.BLOBS, sealing.TORN}
        folders[:] = [name for name in folders if name not in closed and not is_temporary(name)]


def _changed(path: Path) -> float:
    """When the inode last changed; now, when it is gone."""
    try:
        return path.lstat().st_ctime
    except FileNotFoundError:
        return time.time()
