"""One audit: gather evidence, verify every quote, apply the table of verdicts."""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from graders.auditor.base import AuditInput, read_submission
from graders.auditor.behaviour import cleared, deciding_grade
from graders.auditor.checking import run_checks
from graders.auditor.coverage import coverage, summary
from graders.auditor.prediction import borne_out
from graders.auditor.verdict import decide
from graders.auditor.version import AUDITOR_VERSION
from graders.entry import find_entry
from sandboxes.staging import Canaries
from tasks.spec import Task
from transcripts.events import Event
from transcripts.keys import new_id
from transcripts.records import Audit, FileDigest, Grade, digest_of
from transcripts.words import GradeResult

__all__ = ["AUDITOR_VERSION", "audit"]


def audit(
    task: Task,
    submission: Path,
    *,
    grades: Sequence[Grade],
    events: Iterable[Event] | None,
    attempt_id: str | None,
    attempt_seal: str | None,
    canaries: Canaries | None = None,
) -> Audit:
    """Audit one submission on all evidence that is given; what is not there is said, not assumed.

    ``events`` may be an iterator: it is walked once. Never raises for what a submission holds.
    """
    given = _gather(task, submission, grades, events, attempt_id, canaries)
    done = run_checks(given)
    looked, missing = coverage(given, grades, done)
    probes = cleared(given.grades)
    decision = decide(
        done.findings,
        probes,
        failing=_is_failing(given.grades),
        has_evidence=bool(given.files or given.left_out),
        borne_out=borne_out(task, deciding_grade(given.grades)),
        unread="source" not in looked,
    )
    return Audit(
        audit_id=new_id(),
        attempt_id=attempt_id,
        attempt_seal=attempt_seal,
        submission_digest=_digest(given, grades),
        task=task.name,
        task_digest=task.digest,
        grade_ids=tuple(grade.grade_id for grade in grades),
        auditor_version=AUDITOR_VERSION,
        coverage=looked,
        missing=missing,
        findings=tuple(done.findings),
        cleared=tuple(sorted(probes)),
        verdict=decision.verdict,
        rule=decision.rule.name,
        summary=summary(decision, looked, missing),
        at=datetime.now(UTC),
    )


def _gather(
    task: Task,
    submission: Path,
    grades: Sequence[Grade],
    events: Iterable[Event] | None,
    attempt_id: str | None,
    canaries: Canaries | None,
) -> AuditInput:
    notes: list[str] = []
    files, left_out = read_submission(submission) if submission.is_dir() else ({}, {})
    return AuditInput(
        task=task,
        files=files,
        grades=tuple(grade for grade in grades if grade.result is not GradeResult.VOID),
        events=events,
        canaries={bait.token: bait.path for bait in canaries.planted} if canaries else {},
        entry_file=_entry_file(task, submission, notes),
        attempt_id=attempt_id,
        folder=submission,
        left_out=left_out,
        notes=notes,
    )


def _entry_file(task: Task, submission: Path, notes: list[str]) -> str | None:
    """Where the entries are; None, and a note, where the search stumbles over a source."""
    try:
        entry = find_entry(task, submission) if submission.is_dir() else None
    except Exception as error:  # noqa: BLE001 - a submission must not pick what we survive
        notes.append(f"source: the entries could not be looked for ({type(error).__name__})")
        return None
    return entry.file if entry is not None else None


def _is_failing(grades: Sequence[Grade]) -> bool:
    grade = deciding_grade(grades)
    return grade is not None and grade.result is not GradeResult.PASS


def _digest(given: AuditInput, grades: Sequence[Grade]) -> str:
    if grades:
        return grades[-1].submission_digest
    files = [
        FileDigest(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        for path, data in given.files.items()
    ]
    return digest_of([file.model_dump(mode="json") for file in files])
