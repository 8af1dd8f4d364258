"""From a grade's measurements to a cell's score: computed when read, never stored."""

from collections.abc import Callable, Sequence

from graders.scoring import Score, score
from orchestrator.boards.records import CellScore, Scorer
from orchestrator.boards.stats import geometric_mean, mean
from tasks.loader import load_rubric
from tasks.spec import Deck, Rubric, Task
from transcripts.records import Grade, ItemMeasurement

_BOUNDS = ("ci_low_ms", "ci_high_ms")
FullScorer = Callable[[Grade], Score]


def full_scorer(tasks: Sequence[Task]) -> FullScorer:
    """Scores a grade of any of these tasks, which all have a rubric, in all detail."""
    by_name = {task.name: (task, load_rubric(task)) for task in tasks}
    return lambda grade: score(*by_name[grade.task], grade)


def scorer_of(deck: Deck, tasks: Sequence[Task]) -> Scorer:
    """Scores a grade in the deck's unit."""
    by_rubric = deck.score == "rubric"
    by_name = {task.name: (task, load_rubric(task) if by_rubric else None) for task in tasks}

    def scored(grade: Grade) -> CellScore | None:
        task, rubric = by_name[grade.task]
        return _cell_score(deck.score, task, rubric, grade)

    return scored


def _cell_score(unit: str, task: Task, rubric: Rubric | None, grade: Grade) -> CellScore | None:
    """The score with the interval that the 95% intervals of the timings leave to it."""
    middle = score(task, rubric, grade)
    value = _in_unit(unit, middle)
    if value is None:
        return None
    bounds = [_in_unit(unit, _at(task, rubric, grade, bound)) for bound in _BOUNDS]
    around = [value, *(bound for bound in bounds if bound is not None)]
    roofs = [shape.roof_fraction for shape in middle.shapes if shape.roof_fraction is not None]
    return CellScore(
        value=value,
        low=min(around),
        high=max(around),
        milliseconds=geometric_mean([shape.median_ms for shape in middle.shapes]),
        roofline=geometric_mean(roofs),
        measured=None if grade.device.kind == "cpu" else middle.measured_fraction,
    )


def _at(task: Task, rubric: Rubric | None, grade: Grade, bound: str) -> Score:
    """The score, had every shape taken its interval's ``bound``."""
    timings = tuple(t.model_copy(update={"median_ms": getattr(t, bound)}) for t in grade.timings)
    moved = grade.model_copy(update={"timings": timings})
    fractions = [shape.peak_fraction for shape in score(task, None, moved).shapes]
    known = [fraction for fraction in fractions if fraction is not None]
    if rubric is None or not known:
        return score(task, rubric, moved)
    timed = {item.id for item in rubric.items if item.measure == "roofline"}
    items = tuple(_moved(item, mean(known)) if item.item in timed else item for item in grade.items)
    return score(task, rubric, moved.model_copy(update={"items": items}))


def _moved(item: ItemMeasurement, fraction: float) -> ItemMeasurement:
    return item.model_copy(update={"value": fraction}) if item.measurable else item


def _in_unit(unit: str, scored: Score) -> float | None:
    by_unit = {"rubric": scored.points, "speedup": scored.speedup}
    return by_unit.get(unit, scored.peak_fraction)
