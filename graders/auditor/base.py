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
    left_out: Mapping[str, str] = field(default_factory=dict)  # files that were not read, and why
    notes: list[str] = field(default_factory=list)  # what a check could not look at: checks add

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
        why=hit.why.encode("utf-8", "backslashreplace").decode(),  # names may hold surrogates
        reproduce=reproduce,
    )


MAX_FILE_BYTES = 16 << 20
MAX_TOTAL_BYTES = 64 << 20
MAX_FILES = 2000


def read_submission(folder: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """Regular files of a submission folder by relative path, and why others were not read.

    Links are not followed. A name that is no text is shown with its bytes escaped.
    """
    files: dict[str, bytes] = {}
    left_out: dict[str, str] = {}
    room = MAX_TOTAL_BYTES
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file() or "__pycache__" in path.parts:
            continue
        name = _shown(path.relative_to(folder))
        try:
            size = path.stat().st_size
            if size > min(MAX_FILE_BYTES, room) or len(files) >= MAX_FILES:
                left_out[name] = f"was not read ({size} bytes)"
                continue
            files[name] = path.read_bytes()
            room -= size
        except OSError as error:
            left_out[name] = f"could not be read ({type(error).__name__})"
    return files, left_out


def _shown(path: Path) -> str:
    return path.as_posix().encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
