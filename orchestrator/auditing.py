"""Audits of archived attempts: what is missing, from the archive alone."""

from collections.abc import Callable, Iterable

from graders.auditor.pipeline import AUDITOR_VERSION, audit
from orchestrator.grading import foreign_task, is_whole
from sandboxes.staging import plant_canaries
from tasks.loader import load_task
from transcripts.errors import ArchiveError
from transcripts.records import Audit, Grade
from transcripts.store import AttemptFolder
from transcripts.words import GradeResult


def unaudited(
    folders: Iterable[AttemptFolder], say: Callable[[str], None], *, again: bool = False
) -> list[AttemptFolder]:
    """Graded attempts without an audit that saw the newest grade."""
    wanted = []
    for folder in folders:
        try:
            if not _measured(folder) or (_is_current(folder) and not again):
                continue
            reason = foreign_task(folder)
            if reason:
                say(f"left alone: {reason}")
            elif is_whole(folder, say):
                wanted.append(folder)
        except ArchiveError as error:
            say(f"left alone: attempt {folder.id}: {error}")
    return wanted


def _measured(folder: AttemptFolder) -> list[Grade]:
    """The grades of this very attempt that measured something."""
    if not folder.is_sealed:
        return []
    return [
        grade
        for grade in folder.grades()
        if grade.attempt_seal == folder.seal_digest and grade.result is not GradeResult.VOID
    ]


def _is_current(folder: AttemptFolder) -> bool:
    """True when this auditor has seen the newest grade."""
    newest = _measured(folder)[-1].grade_id
    return any(
        newest in one.grade_ids and one.auditor_version == AUDITOR_VERSION
        for one in folder.audits()
    )


def audit_attempt(folder: AttemptFolder) -> Audit:
    """Audit one sealed attempt and add the audit to it."""
    record = folder.record
    canaries = None
    if record.origin == "session":
        _, canaries = plant_canaries(folder.id)
    result = audit(
        load_task(record.cell.task),
        folder.submission_dir,
        grades=[g for g in folder.grades() if g.attempt_seal == folder.seal_digest],
        events=list(folder.events()),
        attempt_id=folder.id,
        attempt_seal=folder.seal_digest,
        canaries=canaries,
    )
    folder.add_audit(result)
    return result


def audit_all(
    folders: Iterable[AttemptFolder], say: Callable[[str], None], *, again: bool = False
) -> list[Audit]:
    """Audit what is missing."""
    audits = []
    for folder in unaudited(folders, say, again=again):
        result = audit_attempt(folder)
        audits.append(result)
        cell = folder.record.cell
        say(f"audit: {cell.entrant_name} x {cell.task}: {result.verdict} ({result.rule})")
    return audits
