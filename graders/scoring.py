"""Scores, computed when read from a grade's measurements; nothing here is ever stored.

Rubric points: an item's mark is the share of its cases that passed (for ``roofline``: the fraction
over ``full_marks_at``, at most 1); a dimension is the weighted mean of its marked items; the
overall is the weighted mean of the marked dimensions, times 100. Judged items wait for a judge and
unmeasurable ones are left out: the weights are renormalised over what is there, and the rest is
listed. A critical item below 1 caps the overall.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from graders.roofline import Standing, standing
from tasks.spec import Rubric, RubricItem, Task
from transcripts.records import Grade, ItemMeasurement, ShapeTiming

SCORING_VERSION = 1


@dataclass(frozen=True)
class ItemScore:
    """One rubric item. ``mark`` is 0..1, None where it does not count."""

    item: str
    dimension: str
    weight: float
    state: Literal["measured", "not measurable", "not judged"]
    mark: float | None
    detail: str = ""


@dataclass(frozen=True)
class DimensionScore:
    """One dimension, 0..100 over its marked items; None when it has none."""

    dimension: str
    weight: float
    points: float | None
    measured: int
    judged_missing: int


@dataclass(frozen=True)
class ShapeScore:
    """One timed shape against the roof."""

    shape: str
    median_ms: float
    ci_low_ms: float
    ci_high_ms: float
    achieved: float
    unit: str
    peak_fraction: float | None  # of the regime's peak (a CPU's measured ceiling)
    roof_fraction: float | None  # of min(peak compute, intensity x bandwidth)
    measured_fraction: float | None  # of the ceiling measured on that device
    speedup: float | None  # over the task's baseline in the same run


@dataclass(frozen=True)
class Score:
    """What a grade is worth under this scoring version."""

    task: str
    scoring_version: int
    points: float | None  # 0..100, unrounded; None when nothing was measured
    capped_by: tuple[str, ...]  # critical items that failed
    dimensions: tuple[DimensionScore, ...]
    items: tuple[ItemScore, ...]
    shapes: tuple[ShapeScore, ...]
    peak_fraction: float | None  # geometric mean over the shapes
    measured_fraction: float | None  # likewise, of the ceiling measured on that device
    speedup: float | None  # likewise, over the baseline

    @property
    def not_judged(self) -> tuple[str, ...]:
        """Items that wait for a judge."""
        return tuple(item.item for item in self.items if item.state == "not judged")


def score(task: Task, rubric: Rubric | None, grade: Grade) -> Score:
    """Compute it; a task without a rubric has no points."""
    measured = {measurement.item: measurement for measurement in grade.items}
    items = tuple(_item(item, measured.get(item.id)) for item in rubric.items) if rubric else ()
    dimensions = tuple(_dimensions(rubric, items)) if rubric else ()
    shapes = tuple(_shapes(task, grade))
    capped = tuple(_failed_critical(rubric, items)) if rubric else ()
    points = _mean((d.points, d.weight) for d in dimensions)
    if rubric and points is not None and capped:
        points = min(points, rubric.critical_cap)
    return Score(
        task=task.name,
        scoring_version=SCORING_VERSION,
        points=points,
        capped_by=capped,
        dimensions=dimensions,
        items=items,
        shapes=shapes,
        peak_fraction=_geometric(shape.peak_fraction for shape in shapes),
        measured_fraction=_geometric(shape.measured_fraction for shape in shapes),
        speedup=_geometric(shape.speedup for shape in shapes),
    )


def _item(item: RubricItem, found: ItemMeasurement | None) -> ItemScore:
    if item.kind == "judged":
        return ItemScore(item.id, item.dimension, item.weight, "not judged", None, item.question)
    if found is None or not found.measurable:
        why = found.detail if found else "it was not measured"
        return ItemScore(item.id, item.dimension, item.weight, "not measurable", None, why)
    mark = _mark(item, found)
    return ItemScore(item.id, item.dimension, item.weight, "measured", mark, found.detail)


def _mark(item: RubricItem, found: ItemMeasurement) -> float:
    if item.measure == "roofline":
        full = item.params.get("full_marks_at", 1.0)
        assert isinstance(full, int | float)
        return min((found.value or 0.0) / full, 1.0)
    return found.passed / found.total if found.total else 0.0


def _dimensions(rubric: Rubric, items: tuple[ItemScore, ...]) -> Iterable[DimensionScore]:
    for name, weight in rubric.dimensions.items():
        own = [item for item in items if item.dimension == name]
        mark = _mean((item.mark, item.weight) for item in own)
        yield DimensionScore(
            name,
            weight,
            None if mark is None else 100 * mark,
            sum(item.mark is not None for item in own),
            sum(item.state == "not judged" for item in own),
        )


def _failed_critical(rubric: Rubric, items: tuple[ItemScore, ...]) -> Iterable[str]:
    critical = {item.id for item in rubric.items if item.critical}
    return (i.item for i in items if i.item in critical and i.mark is not None and i.mark < 1)


def _shapes(task: Task, grade: Grade) -> Iterable[ShapeScore]:
    shapes = {shape.name: shape for shape in task.shapes}
    for timing in grade.timings:
        if timing.shape in shapes:
            stands = standing(task, shapes[timing.shape], timing.median_ms, grade.device)
            yield _shape(timing, stands)


def _shape(timing: ShapeTiming, stands: Standing) -> ShapeScore:
    return ShapeScore(
        timing.shape,
        timing.median_ms,
        timing.ci_low_ms,
        timing.ci_high_ms,
        stands.achieved,
        stands.unit,
        stands.score_fraction,
        stands.roof_fraction,
        stands.measured_fraction,
        timing.baseline_ms / timing.median_ms if timing.baseline_ms else None,
    )


def _mean(pairs: Iterable[tuple[float | None, float]]) -> float | None:
    """Weighted mean of the values that are there."""
    known = [(value, weight) for value, weight in pairs if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def _geometric(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value]
    return math.exp(math.fsum(map(math.log, known)) / len(known)) if known else None
