"""A round: models head to head over a task set.

A published round is JSON of this form; overalls that were given are kept, and the mean that the
dimensions give is printed beside them. Rounds made here compute their overalls from the rubric's
items (``orchestrator.boards.making``) and can be read back the same way.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Annotated, Literal

from pydantic import Field, model_validator

from orchestrator.boards.conditions import differences
from orchestrator.boards.stats import Interval, half_up
from transcripts.records import Record

Points = Annotated[float, Field(ge=0, le=100)]


class Evidence(Record):
    """One strength, weakness or defect: the rubric's item and what was measured."""

    item: str
    dimension: str
    figure: str


class Showing(Record):
    """What one model's attempt shows on one task."""

    attempt_id: str | None = None
    standing: str = ""  # valid, or why the attempt does not count on a board
    low: float | None = None  # 95% interval of the overall, where the attempt is valid
    high: float | None = None
    milliseconds: float | None = None
    roofline: float | None = None
    strengths: tuple[Evidence, ...] = ()
    weaknesses: tuple[Evidence, ...] = ()
    defects: tuple[Evidence, ...] = ()
    not_judged: tuple[str, ...] = ()  # items that nobody has judged
    not_measured: tuple[Evidence, ...] = ()


class RoundTask(Record):
    """One task: points by dimension and overall, one for each model; None is 'not judged'."""

    dimensions: dict[str, tuple[Points | None, ...]]
    overall: tuple[Points | None, ...]
    weights: dict[str, float] = Field(default_factory=dict)  # empty: all alike
    showings: tuple[Showing, ...] = ()
    swings: tuple[str, ...] = ()  # what made it close: items that pulled against the winner

    def computed(self, model: int) -> float | None:
        """The weighted mean of a model's dimensions, over those that have points."""
        return self._mean({name: points[model] for name, points in self.dimensions.items()})

    def hybrid(self) -> tuple[dict[str, tuple[float, tuple[int, ...]]], float | None]:
        """The best points of each dimension with the models that have them, and their mean."""
        best: dict[str, tuple[float, tuple[int, ...]]] = {}
        for name, points in self.dimensions.items():
            known = [value for value in points if value is not None]
            if known:
                top = max(known)
                best[name] = (top, tuple(i for i, value in enumerate(points) if value == top))
        return best, self._mean({name: top for name, (top, _) in best.items()})

    def leads(self) -> list[dict[str, float]]:
        """For each model, the dimensions in which it alone is best, and by how many points."""
        found: list[dict[str, float]] = [{} for _ in self.overall]
        for name, points in self.dimensions.items():
            place = task_winner(points)
            if place is not None:
                others = [v for i, v in enumerate(points) if i != place and v is not None]
                found[place][name] = (points[place] or 0.0) - max(others)
        return found

    def _mean(self, points: dict[str, float | None] | dict[str, float]) -> float | None:
        known = {name: value for name, value in points.items() if value is not None}
        weights = {name: self.weights.get(name, 1.0) for name in known}
        total = sum(weights.values())
        return sum(weights[n] * v for n, v in known.items()) / total if total else None


class Expected(Record):
    """What a published round says that its table must show."""

    average: tuple[int, ...]
    margins: dict[str, float]
    average_margin: float
    winner: str
    tasks_won: tuple[int, ...]


class Round(Record):
    """A round as read or made. Every tuple of points has one place for each model."""

    schema_version: Literal[1] = 1
    round: str
    models: tuple[str, ...] = Field(min_length=2)
    tasks: dict[str, RoundTask] = Field(min_length=1)
    origin: Literal["given", "archive"] = "given"
    conditions: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    expected: Expected | None = None
    note: str = ""

    @model_validator(mode="after")
    def _places(self) -> "Round":
        if len(set(self.models)) != len(self.models):
            raise ValueError("models: a name stands twice")
        for task, result in self.tasks.items():
            for field, points in {"overall": result.overall, **result.dimensions}.items():
                if len(points) != len(self.models):
                    raise ValueError(
                        f"tasks.{task}: {field} has {len(points)} values for "
                        f"{len(self.models)} models"
                    )
        return self

    @property
    def unfair(self) -> list[str]:
        """What was not equal for all, one line each; empty where nothing is known to differ."""
        return differences(self.conditions, self.models)


class Pair(Record):
    """Two models of a round: ``margins`` are the second's points less the first's."""

    first: str
    second: str
    margins: dict[str, float | None]
    averages: tuple[float, float] | None  # over the tasks that both have points on
    rounded: tuple[int, int] | None
    average_margin: float | None  # of the unrounded averages
    rounded_margin: int | None  # of the rounded averages
    tasks_won: tuple[int, int]
    drawn: int
    winner: str | None  # None: a draw, or nothing to compare


def pairs(a_round: Round) -> list[Pair]:
    """Every two models of the round, in the order of its models."""
    return [_pair(a_round, i, j) for i, j in combinations(range(len(a_round.models)), 2)]


def task_winner(overall: Sequence[float | None]) -> int | None:
    """The place of the best; None for a draw at the top, or where somebody has no points."""
    known = [value for value in overall if value is not None]
    if len(known) < len(overall) or known.count(max(known)) > 1:
        return None
    return overall.index(max(known))


def is_tie(result: RoundTask, i: int, j: int) -> bool:
    """True when both have intervals and they overlap: the margin is within the noise."""
    intervals = [
        Interval(showing.low, showing.high)
        for place, showing in enumerate(result.showings)
        if place in (i, j) and showing.low is not None and showing.high is not None
    ]
    return len(intervals) == 2 and intervals[0].overlaps(intervals[1])


def mismatches(a_round: Round) -> list[str]:
    """Where the table differs from what the round's file says that it must show."""
    expected = a_round.expected
    if expected is None or len(a_round.models) != 2:
        return []
    (pair,) = pairs(a_round)
    computed = {
        "average": pair.rounded,
        "margins": pair.margins,
        "average_margin": pair.rounded_margin,
        "winner": pair.winner,
        "tasks_won": pair.tasks_won,
    }
    return [
        f"the file expects {name} {getattr(expected, name)}, its points give {value}"
        for name, value in computed.items()
        if getattr(expected, name) != value
    ]


def _pair(a_round: Round, i: int, j: int) -> Pair:
    first, second = a_round.models[i], a_round.models[j]
    points = {
        task: (_exact(result.overall[i]), _exact(result.overall[j]))
        for task, result in a_round.tasks.items()
    }
    both = [(a, b) for a, b in points.values() if a is not None and b is not None]
    wins = (sum(a > b for a, b in both), sum(b > a for a, b in both))
    averages = _averages(both)
    return Pair(
        first=first,
        second=second,
        margins={
            task: float(b - a) if a is not None and b is not None else None
            for task, (a, b) in points.items()
        },
        averages=(float(averages[0]), float(averages[1])) if averages else None,
        rounded=(half_up(averages[0]), half_up(averages[1])) if averages else None,
        average_margin=float(averages[1] - averages[0]) if averages else None,
        rounded_margin=half_up(averages[1]) - half_up(averages[0]) if averages else None,
        tasks_won=wins,
        drawn=len(both) - sum(wins),
        winner=_winner(first, second, averages),
    )


def _winner(first: str, second: str, averages: tuple[Fraction, Fraction] | None) -> str | None:
    if averages is None or averages[0] == averages[1]:
        return None
    return first if averages[0] > averages[1] else second


def _averages(both: Sequence[tuple[Fraction, Fraction]]) -> tuple[Fraction, Fraction] | None:
    if not both:
        return None
    return (
        sum((a for a, _ in both), Fraction(0)) / len(both),
        sum((b for _, b in both), Fraction(0)) / len(both),
    )


def _exact(value: float | None) -> Fraction | None:
    """The decimal that was written, so that halves round as on paper."""
    return None if value is None else Fraction(str(value))
