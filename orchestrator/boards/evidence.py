"""Which grade and which audit count for an attempt, and how it stands because of them.

Pure: archive in, standing out. What does not name the attempt's seal is shown as a problem and
never used; what the archive could not read (a broken seal of a grade) comes in as a problem too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.boards.counting import counting
from orchestrator.boards.states import BoardState, board_state
from transcripts.records import Attempt, Audit, Grade
from transcripts.words import GradeResult, Verdict


@dataclass(frozen=True)
class AttemptEvidence:
    """An attempt and everything that the archive holds about it."""

    attempt: Attempt
    seal: str | None  # digest of seal.json; None while the session lives
    grades: tuple[Grade, ...] = ()
    audits: tuple[Audit, ...] = ()
    problems: tuple[str, ...] = ()  # what the archive found broken beside it


@dataclass(frozen=True)
class TaskVersion:
    """The version of a task that a board ranks."""

    digest: str  # or the start of one
    scoring_version: int

    def covers(self, task_digest: str) -> bool:
        """True when the digest is this version's."""
        return task_digest.startswith(self.digest)


@dataclass(frozen=True)
class Terms:
    """What a grade or an audit must match to count on one board."""

    hardware: str
    tasks: Mapping[str, TaskVersion]
    until: datetime | None = None  # grades and audits made later do not count


@dataclass(frozen=True)
class Standing:
    """How an attempt stands on one board, with what decided it."""

    evidence: AttemptEvidence
    state: BoardState
    why: str  # the words of the table of states
    detail: str = ""  # what they rest on, in this case
    grade: Grade | None = None  # the isolated regrade that counts
    in_run: Grade | None = None  # the latest of the session's own grades, for comparison
    audit: Audit | None = None
    problems: tuple[str, ...] = ()

    @property
    def attempt(self) -> Attempt:
        """The archived attempt."""
        return self.evidence.attempt


def stand(evidence: AttemptEvidence, terms: Terms) -> Standing:
    """How the attempt stands under these terms."""
    grades, audits, problems = _own(evidence)
    known = [g for g in grades if terms.until is None or g.started_at <= terms.until]
    seen = [a for a in audits if terms.until is None or a.at <= terms.until]
    grade = _counting(known, evidence.attempt, terms)
    audit = _latest_audit(seen)
    state, why = _state(evidence, grade, audit)
    return Standing(
        evidence=evidence,
        state=state,
        why=why,
        detail=_detail(state, evidence.attempt, grade, audit, _why_ungraded(known, terms)),
        grade=grade,
        in_run=max(
            (g for g in _of_version(known, evidence.attempt, terms) if g.mode == "in_run"),
            key=_age,
            default=None,
        ),
        audit=audit,
        problems=(*evidence.problems, *problems, *_late_flags(audits, terms)),
    )


def hardware_of(evidence: Iterable[AttemptEvidence]) -> list[str]:
    """Every hardware key on which something was regraded, sorted."""
    keys = {
        grade.device.hardware
        for one in evidence
        for grade in _own(one)[0]
        if grade.mode == "isolated"
    }
    return sorted(keys)


def _own(evidence: AttemptEvidence) -> tuple[list[Grade], list[Audit], list[str]]:
    """The grades and audits that name this attempt and its seal, and the others as problems."""
    problems: list[str] = []
    grades, audits = [], []
    for grade in evidence.grades:
        in_session = grade.mode == "in_run" and grade.attempt_seal is None
        if in_session or _names(evidence, grade.attempt_id, grade.attempt_seal):
            grades.append(grade)
        else:
            problems.append(_foreign("grade", grade.grade_id, evidence, grade.attempt_seal))
    for audit in evidence.audits:
        if _names(evidence, audit.attempt_id, audit.attempt_seal):
            audits.append(audit)
        else:
            problems.append(_foreign("audit", audit.audit_id, evidence, audit.attempt_seal))
    return grades, audits, problems


def _names(evidence: AttemptEvidence, attempt_id: str | None, seal: str | None) -> bool:
    return attempt_id == evidence.attempt.attempt_id and seal is not None and seal == evidence.seal


def _foreign(kind: str, record_id: str, evidence: AttemptEvidence, seal: str | None) -> str:
    return (
        f"{kind} {record_id} is not used: it names seal {_short(seal)}, "
        f"the attempt's is {_short(evidence.seal)}"
    )


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "none"


def _counting(grades: Sequence[Grade], attempt: Attempt, terms: Terms) -> Grade | None:
    """The isolated grade under these terms that counts; see `orchestrator.boards.counting`."""
    return counting(
        [
            g
            for g in _of_version(grades, attempt, terms)
            if g.mode == "isolated" and g.device.hardware == terms.hardware
        ]
    )


def _of_version(grades: Sequence[Grade], attempt: Attempt, terms: Terms) -> list[Grade]:
    """Those of the task, digest and scoring version that the board ranks."""
    version = terms.tasks[attempt.cell.task]
    return [
        g
        for g in grades
        if g.task == attempt.cell.task
        and version.covers(g.task_digest)
        and g.scoring_version == version.scoring_version
    ]


def _age(grade: Grade) -> str:
    return grade.grade_id  # ids sort by time


def _latest_audit(audits: Sequence[Audit]) -> Audit | None:
    """The latest audit that came to a verdict."""
    concluded = [a for a in audits if a.verdict is not Verdict.UNAUDITED]
    return max(concluded, key=lambda a: a.audit_id, default=None)


def _state(
    evidence: AttemptEvidence, grade: Grade | None, audit: Audit | None
) -> tuple[BoardState, str]:
    outcome = evidence.attempt.outcome
    if outcome is None or evidence.seal is None:
        broken = "its seal does not hold: nothing of it counts"
        unfinished = "not finished: `sweep` again goes on with it"
        return BoardState.PENDING, broken if evidence.problems else unfinished
    return board_state(
        outcome.end,
        grade.result if grade else None,
        audit.verdict if audit else Verdict.UNAUDITED,
    )


def _detail(
    state: BoardState, attempt: Attempt, grade: Grade | None, audit: Audit | None, ungraded: str
) -> str:
    outcome = attempt.outcome
    if audit and (state is BoardState.FLAGGED or (audit.verdict is Verdict.FAIL and not grade)):
        return _verdict(audit)
    if state is BoardState.UNGRADED:
        return ungraded
    if grade and grade.result is not GradeResult.PASS:
        return _joined(grade.result, grade.reason, grade.message)
    if outcome and state is BoardState.PENDING:
        return _joined(outcome.end, outcome.reason, outcome.message)
    if outcome and state is BoardState.NO_SUBMISSION:
        return _joined(outcome.reason, outcome.message)
    return _verdict(audit) if audit else ""


def _verdict(audit: Audit) -> str:
    """The verdict and its summary, which may begin with it."""
    return _joined(audit.verdict, audit.summary.removeprefix(f"{audit.verdict}: "))


def _joined(*parts: str) -> str:
    return ": ".join(part for part in dict.fromkeys(str(part).strip() for part in parts) if part)


def _why_ungraded(grades: Sequence[Grade], terms: Terms) -> str:
    """Why none of the grades that there are counts; what to do where something can be done."""
    isolated = [g for g in grades if g.mode == "isolated"]
    if not isolated:
        return "no isolated regrade yet: run `grade`"
    elsewhere = sorted({g.device.hardware for g in isolated} - {terms.hardware})
    if elsewhere and all(g.device.hardware != terms.hardware for g in isolated):
        return f"graded on {', '.join(elsewhere)} only"
    return "graded for another version of the task: run `grade` again"


def _late_flags(audits: Sequence[Audit], terms: Terms) -> list[str]:
    """A pinned board never changes by itself, but it says what it does not yet know."""
    return [
        f"audit {a.audit_id}, later than the board's `until`, flags it ({a.verdict}): "
        "put it on hold, or move `until`"
        for a in audits
        if terms.until is not None and a.at > terms.until and a.verdict.flagged
    ]
