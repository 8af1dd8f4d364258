"""What a source check over Python is: a rule and a look at one parsed file."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from graders.auditor.base import AuditInput, Rule
from graders.auditor.hits import Hit
from graders.auditor.pysource import PySource
from transcripts.words import EvidenceKind, Strength

PROOF, STRONG, WEAK = Strength.PROOF, Strength.STRONG, Strength.WEAK

Look: TypeAlias = Callable[[PySource, AuditInput], Iterable[Hit]]


@dataclass(frozen=True)
class Wire:
    """A source check over each Python file of the closure."""

    rule: Rule
    look: Look

    def inspect(self, given: AuditInput) -> Iterator[Hit]:
        """Strikes, one a line at most."""
        for source in given.closure.python:
            seen: set[tuple[int, int] | None] = set()
            for hit in self.look(source, given):
                if hit.lines not in seen:
                    seen.add(hit.lines)
                    yield hit


def wire(name: str, mechanism: str, strength: Strength, look: Look, version: int = 1) -> Wire:
    """A row of a table of checks."""
    return Wire(Rule(f"source.{name}", version, EvidenceKind.SOURCE, mechanism, strength), look)


def uses(pattern: str, why: str, strength: Strength | None = None) -> Look:
    """A check that strikes where an attribute of a module is used whose name fits ``pattern``."""
    regex = re.compile(pattern)

    def look(source: PySource, _: AuditInput) -> Iterator[Hit]:
        for node, names in source.touches:
            name = next((name for name in sorted(names) if regex.fullmatch(name)), None)
            if name is not None:
                yield source.hit(node, f"`{name}`: {why}", strength=strength)

    return look
