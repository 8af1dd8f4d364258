"""Running the checks, each on its own: what one stumbles over is said and hides nothing else."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from graders.auditor.base import AuditCheck, AuditInput, finding
from graders.auditor.behaviour import artefact
from graders.auditor.hits import Hit
from graders.auditor.registry import of_kind
from graders.auditor.trees import metered
from transcripts.events import Event, ToolCallStarted, ToolResult
from transcripts.records import Finding, Grade
from transcripts.words import EvidenceKind, Strength

MAX_ALIKE = 50
"""Findings of one check with one mechanism and strength: more of the same says nothing new."""


@dataclass
class Checked:
    """Verified findings, strongest first, and what kept checks from finishing."""

    findings: list[Finding] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unfinished: set[EvidenceKind] = field(default_factory=set)

    def fail(self, check: AuditCheck, why: str) -> None:
        """A check did not do all that it is there for."""
        line = f"{check.rule.id}: {why}"
        if line not in self.problems:
            self.problems.append(line)
        self.unfinished.add(check.rule.kind)


def run_checks(given: AuditInput) -> Checked:
    """Every check on the evidence that is there."""
    done = Checked()
    recorder = _Recorder(given.events) if given.events is not None else None
    seen = given if recorder is None else given.with_events(recorder)
    for kind in EvidenceKind:
        for check in of_kind(kind):
            _run(check, seen, recorder, done)
    order = list(Strength)
    done.findings.sort(key=lambda f: (order.index(f.strength), f.check, f.place, f.lines or (0, 0)))
    return done


def _run(check: AuditCheck, given: AuditInput, recorder: "_Recorder | None", done: Checked) -> None:
    alike: Counter[tuple[str | None, Strength | None]] = Counter()
    try:
        with metered():
            for hit in check.inspect(given):
                alike[hit.mechanism, hit.strength] += 1
                if alike[hit.mechanism, hit.strength] > MAX_ALIKE:
                    continue
                if _is_verbatim(hit, check, given, recorder):
                    done.findings.append(finding(check.rule, hit, _reproduce(given)))
                else:
                    done.fail(check, f"a quote is not in {hit.place} as given")
    except Exception as error:  # noqa: BLE001 - a submission must not pick what we survive
        done.fail(check, f"did not finish ({type(error).__name__})")


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
