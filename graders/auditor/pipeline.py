"""One audit: gather evidence, verify every quote, apply the table of verdicts."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from graders.auditor.base import AuditCheck, AuditInput, finding, read_submission
from graders.auditor.behaviour import artefact, cleared, deciding_grade
from graders.auditor.hits import Hit
from graders.auditor.registry import of_kind
from graders.auditor.verdict import Decision, decide
from graders.auditor.version import AUDITOR_VERSION
from graders.entry import find_entry
from graders.mechanisms import MECHANISMS
from sandboxes.staging import Canaries
from tasks.spec import Task
from transcripts.events import Event, ToolCallStarted, ToolResult
from transcripts.keys import new_id
from transcripts.records import Audit, Finding, Grade, digest_of
from transcripts.sealing import submission_digests
from transcripts.words import EvidenceKind, GradeResult, Strength

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
    findings, problems = _findings(given)
    coverage, missing = _coverage(given, grades)
    probes = cleared(given.grades)
    decision = decide(
        findings,
        probes,
        failing=_is_failing(given.grades),
        has_evidence=bool(given.files),
    )
    return Audit(
        audit_id=new_id(),
        attempt_id=attempt_id,
        attempt_seal=attempt_seal,
        submission_digest=_digest(submission, grades),
        task=task.name,
        task_digest=task.digest,
        grade_ids=tuple(grade.grade_id for grade in grades),
        auditor_version=AUDITOR_VERSION,
        coverage=coverage,
        missing=(*missing, *problems),
        findings=tuple(findings),
        cleared=tuple(sorted(probes)),
        verdict=decision.verdict,
        rule=decision.rule.name,
        summary=_summary(decision, coverage, missing),
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
    entry = find_entry(task, submission) if submission.is_dir() else None
    return AuditInput(
        task=task,
        files=read_submission(submission) if submission.is_dir() else {},
        grades=tuple(grade for grade in grades if grade.result is not GradeResult.VOID),
        events=events,
        canaries={bait.token: bait.path for bait in canaries.planted} if canaries else {},
        entry_file=entry.file if entry is not None else None,
        attempt_id=attempt_id,
        folder=submission,
    )


def _is_failing(grades: Sequence[Grade]) -> bool:
    grade = deciding_grade(grades)
    return grade is not None and grade.result is not GradeResult.PASS


def _digest(submission: Path, grades: Sequence[Grade]) -> str:
    if grades:
        return grades[-1].submission_digest
    files = submission_digests(submission) if submission.is_dir() else ()
    return digest_of([file.model_dump(mode="json") for file in files])


# --- findings ----------------------------------------------------------------------------------


def _findings(given: AuditInput) -> tuple[list[Finding], list[str]]:
    """Verified findings, strongest first, and what kept a check from finishing."""
    found: list[Finding] = []
    problems: list[str] = []
    recorder = _Recorder(given.events) if given.events is not None else None
    seen = given if recorder is None else given.with_events(recorder)
    for kind in EvidenceKind:
        for check in of_kind(kind):
            found += _verified(check, seen, recorder, problems)
    found.sort(
        key=lambda f: (list(Strength).index(f.strength), f.check, f.place, f.lines or (0, 0))
    )
    return found, problems


def _verified(
    check: AuditCheck, given: AuditInput, recorder: "_Recorder | None", problems: list[str]
) -> list[Finding]:
    findings = []
    try:
        for hit in check.inspect(given):
            if _is_verbatim(hit, check, given, recorder):
                findings.append(finding(check.rule, hit, _reproduce(given)))
            else:
                problems.append(f"{check.rule.id}: a quote is not in {hit.place} as given")
    except RecursionError:
        problems.append(f"{check.rule.id}: the source is nested too deeply to be followed")
    return findings


def _reproduce(given: AuditInput) -> str:
    if given.attempt_id is not None:
        return f"orchestrator audit {given.attempt_id}"
    return f"python -m graders.auditor {given.task.name} {given.folder}"


def _is_verbatim(
    hit: Hit, check: AuditCheck, given: AuditInput, recorder: "_Recorder | None"
) -> bool:
    """True when the quote stands in the artefact, byte for byte."""
    if not hit.quote:
        return False
    quote = hit.quote.encode("utf-8")
    if check.rule.kind is EvidenceKind.SOURCE:
        return quote in given.files.get(hit.place, b"")
    if check.rule.kind is EvidenceKind.TRANSCRIPT:
        return recorder is not None and recorder.holds(hit)
    return any(quote in text for text in _graded(given.grades))


def _graded(grades: Sequence[Grade]) -> Iterator[bytes]:
    for grade in grades:
        yield f'"result":"{grade.result.value}"'.encode()
        yield from (artefact(check).encode() for check in grade.checks)


class _Recorder:
    """Passes events on and keeps the texts of the latest steps, to hold quotes against."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = events
        self._recent: dict[int, str] = {}
        self.count = 0

    def __iter__(self) -> Iterator[Event]:
        calls: dict[str, int] = {}
        for event in self._events:
            self.count += 1
            if isinstance(event, ToolCallStarted):
                calls[event.call.id] = event.n
                self._recent[event.n] = event.call.arguments
            elif isinstance(event, ToolResult):
                self._recent[event.n] = event.text
            yield event
            if isinstance(event, ToolResult):
                self._recent.pop(event.n, None)
                self._recent.pop(calls.pop(event.call_id, -1), None)

    def holds(self, hit: Hit) -> bool:
        """True while a step that the hit names is at hand and holds the quote."""
        return any(hit.quote in self._recent.get(step, "") for step in hit.steps)


# --- what was looked at ------------------------------------------------------------------------


def _coverage(
    given: AuditInput, grades: Sequence[Grade]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    coverage, missing = [], []
    if given.files:
        coverage.append("source")
        missing += [f"source: {why}" for why in given.closure.opaque]
        missing += [f"source: {path} is binary" for path in given.closure.binaries]
    else:
        missing.append("source: nothing was handed in")
    if given.grades:
        coverage.append("behaviour")
        missing += _unrun(given.grades)
    else:
        missing.append("behaviour: void grades only" if grades else "behaviour: no grade")
    if given.events is not None:
        coverage.append("transcript")
    else:
        missing.append("transcript: none")
    return tuple(coverage), tuple(missing)


def _unrun(grades: Sequence[Grade]) -> list[str]:
    ran = {check.check for grade in grades for check in grade.checks if check.passed is not None}
    unrun = {
        check.check: check.detail
        for grade in grades
        for check in grade.checks
        if check.passed is None and check.check not in ran
    }
    lines = [
        f"behaviour: probe `{name}` did not run" + (f" ({why})" if why else "")
        for name, why in sorted(unrun.items())
    ]
    named = {check.mechanism for grade in grades for check in grade.checks if check.mechanism}
    unknown = sorted(named - MECHANISMS.keys())
    return lines + [f"behaviour: the mechanism `{name}` is not known here" for name in unknown]


def _summary(decision: Decision, coverage: tuple[str, ...], missing: tuple[str, ...]) -> str:
    looked = " and ".join(coverage) or "nothing"
    without = sorted({line.split(":")[0] for line in missing} - set(coverage))
    seen = looked + (f", no {', no '.join(without)}" if without else "")
    if decision.grounds:
        ground = decision.grounds[0]
        lines = f":{ground.lines[0]}" if ground.lines else ""
        return f"{decision.verdict}: {ground.why} ({ground.place}{lines}); seen: {seen}"
    return f"{decision.verdict}: {decision.rule.meaning}; seen: {seen}"
