"""From the archive on disk to evidence: all that boards and rounds know comes through here."""

import hashlib
from collections.abc import Mapping, Sequence

from orchestrator.boards.evidence import AttemptEvidence, TaskVersion
from tasks.spec import Task
from transcripts.errors import Corrupt
from transcripts.folder import RECORD
from transcripts.store import Archive, AttemptFolder


def read_evidence(archive: Archive, tasks: Sequence[str]) -> list[AttemptEvidence]:
    """All attempts at these tasks with their intact grades and audits, sorted by id."""
    return [_evidence(folder) for folder in archive.attempts() if folder.record.cell.task in tasks]


def versions_of(tasks: Sequence[Task]) -> Mapping[str, TaskVersion]:
    """The versions that this installation has."""
    return {task.name: TaskVersion(task.digest, task.scoring_version) for task in tasks}


def _evidence(folder: AttemptFolder) -> AttemptEvidence:
    seal, broken = _seal(folder)
    grades = tuple(folder.grades()) if seal else ()
    audits = tuple(folder.audits()) if seal else ()
    inside = f"{folder.path}/"
    return AttemptEvidence(
        attempt=folder.record,
        seal=seal,
        grades=grades,
        audits=audits,
        problems=tuple(text.replace(inside, "") for text in (*broken, *folder.problems)),
    )


def _seal(folder: AttemptFolder) -> tuple[str | None, list[str]]:
    """The seal's digest; None while the attempt lives, or where the seal does not hold.

    Only the record is checked against it here: ``archive verify`` checks every file.
    """
    try:
        found = folder.load_seal()
    except Corrupt as error:
        return None, [str(error)]
    if found is None:
        return None, []
    seal, digest = found
    record = hashlib.sha256((folder.path / RECORD).read_bytes()).hexdigest()
    if seal.files.get(RECORD) != record:
        return None, [f"{RECORD} was changed after the seal: nothing of this attempt counts"]
    return digest, []
