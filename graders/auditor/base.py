"""What a check of the auditor is, and what it is given.

A check looks at one kind of evidence and yields hits; the pipeline turns a hit into a ``Finding``
once its quote has been found, byte for byte, in the artefact that it names.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

from graders.auditor.closure import Closure
from graders.auditor.hits import Hit
from graders.mechanisms import MECHANISMS
from tasks.spec import Task
from transcripts.events import Event
from transcripts.records import Finding, Grade
from transcripts.words import EvidenceKind, Strength


@dataclass(frozen=True)
class AuditInput:
    """All evidence about one submission. ``events`` is None where no transcript is at hand."""

    task: Task
    files: Mapping[str, bytes]  # of the submission folder, by relative path
    grades: tuple[Grade, ...] = ()  # that measured something: void ones are no evidence
    events: Iterable[Event] | None = None  # walked once
    canaries: Mapping[str, str] = field(default_factory=dict)  # bait: token -> where it was planted
    entry_file: str | None = None  # where `graders.entry` found the entries
    attempt_id: str | None = None
    folder: Path = Path()

    def with_events(self, events: Iterable[Event]) -> "AuditInput":
        """The same evidence with its events behind another iterable."""
        return replace(self, events=events)

    @cached_property
    def closure(self) -> Closure:
        """The parsed sources that the entry can reach."""
        return Closure(self.task, self.files, self.entry_file)


@dataclass(frozen=True)
class Rule:
    """What names a check and what its hits mean unless a hit says otherwise."""

    id: str
    version: int
    kind: EvidenceKind
    mechanism: str
    strength: Strength


class AuditCheck(Protocol):
    """One check: a rule and the code that looks. Never raises for what a submission holds."""

    @property
    def rule(self) -> Rule:
        """What names the check."""
        ...

    def inspect(self, given: AuditInput) -> Iterator[Hit]:
        """Yield every strike."""
        ...


def finding(rule: Rule, hit: Hit, reproduce: str) -> Finding:
    """The record of a hit whose quote has been verified."""
    mechanism = hit.mechanism or rule.mechanism
    return Finding(
        check=rule.id,
        check_version=rule.version,
        kind=rule.kind,
        verdict=MECHANISMS[mechanism].verdict,
        strength=hit.strength or rule.strength,
        mechanism=mechanism,
        place=hit.place,
        lines=hit.lines,
        steps=hit.steps,
        quote=hit.quote,
        why=hit.why,
        reproduce=reproduce,
    )


def read_submission(folder: Path) -> dict[str, bytes]:
    """Regular files of a submission folder by relative path; links are not followed."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts
    }
