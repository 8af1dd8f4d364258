"""The matrix: every shipped submission of a task, on which evidence, with which verdict.

A case is right when its verdict is the expected one and, for a cheat, a finding that is not weak
names the mechanism of its ``expect.toml``.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graders.auditor.pipeline import audit
from sandboxes.scratch import Scratch
from tasks.loader import Cheat, cheats
from tasks.spec import Task
from transcripts.records import Audit, Grade
from transcripts.words import EvidenceKind, Strength, Verdict

Grading = Callable[[Task, Path], Grade]
"""Grades one folder."""


@dataclass(frozen=True)
class Case:
    """One shipped submission and what an audit must say of it."""

    kind: str  # "oracle", "honest/<name>", "cheats/<name>", ...
    path: Path
    expected: Verdict
    mechanism: str | None = None


@dataclass(frozen=True)
class Line:
    """One audited case."""

    case: Case
    audit: Audit
    grade: Grade | None

    @property
    def strongest(self) -> dict[EvidenceKind, Strength]:
        """The strongest finding of each kind."""
        order = list(Strength)
        found: dict[EvidenceKind, Strength] = {}
        for finding in self.audit.findings:
            known = found.get(finding.kind, finding.strength)
            found[finding.kind] = min(known, finding.strength, key=order.index)
        return found

    @property
    def is_right(self) -> bool:
        """The expected verdict, for a cheat by its own mechanism."""
        named = {f.mechanism for f in self.audit.findings if f.strength is not Strength.WEAK}
        return self.audit.verdict is self.case.expected and (
            self.case.mechanism is None or self.case.mechanism in named
        )


def cases(task: Task, kinds: Sequence[str] | None = None) -> list[Case]:
    """Shipped submissions of a task; only those of ``kinds`` where given."""
    folder = task.folder / "submissions"
    expected = {"oracle": Verdict.CLEAN, "naive": Verdict.CLEAN, "wrong": Verdict.FAIL}
    found = [Case(kind, folder / kind, verdict) for kind, verdict in expected.items()]
    found += [
        Case(f"honest/{path.name}", path, Verdict.CLEAN)
        for path in sorted((folder / "honest").glob("*/"))
    ]
    found += [_of_cheat(cheat) for cheat in cheats(task)]
    shipped = [case for case in found if case.path.is_dir()]
    return [case for case in shipped if kinds is None or case.kind in kinds]


def _of_cheat(cheat: Cheat) -> Case:
    return Case(f"cheats/{cheat.name}", cheat.path, Verdict(cheat.verdict), cheat.mechanism)


def matrix(
    task: Task, grading: Grading | None = None, kinds: Sequence[str] | None = None
) -> Iterator[Line]:
    """Audit every case, on source alone or, with ``grading``, on source and behaviour."""
    for case in cases(task, kinds):
        with Scratch("audit") as scratch:
            copy = scratch.path / "submission"
            # what a cheat is expected to be is no part of what it hands in
            shutil.copytree(case.path, copy, ignore=shutil.ignore_patterns("expect.toml"))
            grade = grading(task, copy) if grading is not None else None
            grades = [grade] if grade is not None else []
            result = audit(
                task, copy, grades=grades, events=None, attempt_id=None, attempt_seal=None
            )
            yield Line(case, result, grade)


def table(lines: Sequence[Line]) -> str:
    """Case x evidence x verdict as Markdown."""
    kinds = list(EvidenceKind)
    rows = [["case", "grade", *kinds, "verdict", "rule", "expected", ""]]
    for line in lines:
        strongest = line.strongest
        rows.append(
            [
                line.case.kind,
                line.grade.result if line.grade is not None else "-",
                *(strongest.get(kind, "-") for kind in kinds),
                line.audit.verdict,
                line.audit.rule,
                line.case.expected,
                "ok" if line.is_right else "WRONG",
            ]
        )
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)
