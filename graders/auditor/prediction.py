"""Which shortcuts a measured failure bears out: those that fail where this submission failed.

A wrong result alone says nothing of its cause. A shortcut says where it is wrong and where right:
above a size, at ordinary magnitudes, by a rounding error, everywhere. Kept results are right for
some inputs of a size and wrong for others of the same size, and their own probe fails too.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tasks.spec import Shape, Task
from transcripts.records import Grade, ShapeCorrectness
from transcripts.words import GradeResult

ROUNDING = 2e-2
"""Root mean square error over that of the reference: half precision stays below it, mistakes in
the formula do not."""


@dataclass(frozen=True)
class Failure:
    """The rows of one failing grade."""

    task: Task
    rows: Sequence[ShapeCorrectness]

    def of(self, group: str, *, passed: bool) -> list[ShapeCorrectness]:
        """Rows of a kind of group ("nominal", "stress", "property") with this outcome."""
        kind = [row for row in self.rows if row.group.split(":")[0] == group and row.runs]
        return [row for row in kind if row.passed is passed]

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """The task's shapes by name."""
        return {shape.name: shape for shape in (*self.task.smoke, *self.task.shapes)}

    def everywhere(self) -> bool:
        """No nominal case is right."""
        return bool(self.of("nominal", passed=False)) and not self.of("nominal", passed=True)

    def above_a_size(self) -> bool:
        """Wrong in larger nominal cases, right in all smaller ones and in all else."""
        wrong, right = (self._sizes(passed=outcome) for outcome in (False, True))
        return bool(wrong and right) and min(wrong) > max(right) and self._only_nominal()

    def by_rounding(self) -> bool:
        """Wrong by little, in cases of one type, and nowhere else."""
        wrong = self.of("nominal", passed=False)
        close = all(row.rms_ratio is not None and row.rms_ratio < ROUNDING for row in wrong)
        types = {self.shapes[row.shape].dtype for row in wrong if row.shape in self.shapes}
        return bool(wrong) and close and len(types) == 1 and self._only_nominal()

    def by_magnitude(self) -> bool:
        """Ordinary magnitudes and others differ in being right, and nothing else is wrong."""
        if self.of("property", passed=False):
            return False
        if self.of("nominal", passed=False):
            return bool(self.of("stress", passed=True)) and not self.of("stress", passed=False)
        return bool(self.of("nominal", passed=True)) and bool(self.of("stress", passed=False))

    def at_times(self) -> bool:
        """Of one size, some inputs are served right and others wrong."""
        return any(row.group == "nominal" and 0 < row.failures < row.runs for row in self.rows)

    def _sizes(self, *, passed: bool) -> list[int]:
        rows = self.of("nominal", passed=passed)
        return [
            math.prod(self.shapes[r.shape].dims.values()) for r in rows if r.shape in self.shapes
        ]

    def _only_nominal(self) -> bool:
        return not any(self.of(group, passed=False) for group in ("property", "stress"))


_PREDICTED: dict[str, Callable[[Failure], bool]] = {
    "correctness:size-gate": Failure.above_a_size,
    "correctness:precision": Failure.by_rounding,
    "correctness:magnitude-sniff": Failure.by_magnitude,
    "correctness:uninitialised": Failure.everywhere,
    "timing:late-write": Failure.everywhere,
    "timing:lazy": Failure.everywhere,
}


def borne_out(task: Task, grade: Grade | None) -> frozenset[str]:
    """Mechanisms whose failure is the one that was measured; none where the result is not wrong."""
    if grade is None or grade.result not in (GradeResult.WRONG, GradeResult.NAN):
        return frozenset()
    failure = Failure(task, grade.correctness)
    found = {name for name, holds in _PREDICTED.items() if holds(failure)}
    if failure.at_times():
        failed = {check.mechanism for check in grade.checks if check.passed is False}
        found |= {name for name in failed if name and name.startswith("cache:")}
    return frozenset(found)
