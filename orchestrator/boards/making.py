"""Make a round from models of an archive: points of the measured items, with their evidence."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from graders.scoring import ItemScore, Score
from orchestrator.boards.assembly import default_boards
from orchestrator.boards.choose import choose
from orchestrator.boards.conditions import differences, obligations, particulars, side_by_side
from orchestrator.boards.evidence import Terms, stand
from orchestrator.boards.paired import cell_conditions
from orchestrator.boards.reading import read_evidence, versions_of
from orchestrator.boards.records import Board, Cell, EntrantRow, Listing
from orchestrator.boards.rounds import Evidence, Round, RoundTask, Showing, task_winner
from orchestrator.boards.scores import full_scorer, scorer_of
from orchestrator.boards.states import BoardState
from orchestrator.errors import UserError
from tasks.deck import deck_tasks, load_deck
from transcripts.records import Grade, ItemMeasurement
from transcripts.store import Archive

_COUNTS_NOTHING = frozenset({BoardState.FLAGGED, BoardState.NO_SUBMISSION})
_SHOWN_ITEMS = 5  # strengths and weaknesses of one attempt
_SHOWN_SWINGS = 3
_NOISE = 0.05  # points that would print as 0.0


@dataclass(frozen=True)
class _Graded:
    """A grade with what it is worth."""

    grade: Grade
    score: Score


ScoreOf = Callable[[Listing], _Graded | None]


@dataclass(frozen=True)
class _Contender:
    """One model of the round, on the board of the hardware that its results are from."""

    board: Board
    row: EntrantRow


def make_round(archive: Archive, deck: str, models: Sequence[str]) -> Round:
    """The round of these entrants over the deck.

    Raises UnknownEntrant, UnknownDeck, or UserError for a name given twice or a deck without
    rubrics.
    """
    declared = load_deck(deck)
    if declared.score != "rubric":
        raise UserError(f"deck `{deck}` has no rubrics: `board --deck {deck}` ranks it")
    tasks = deck_tasks(declared)
    evidence = read_evidence(archive, [task.name for task in tasks])
    versions, full = versions_of(tasks), full_scorer(tasks)
    boards = default_boards(declared, versions, evidence, scorer_of(declared, tasks))
    standings = [
        stand(one, Terms(board.hardware, versions)) for board in boards for one in evidence
    ]
    grades = {one.grade.grade_id: one.grade for one in standings if one.grade}

    def score_of(listing: Listing) -> _Graded | None:
        grade = grades.get(listing.grade_id or "")
        return _Graded(grade, full(grade)) if grade else None

    contenders = _contenders(boards, models)
    return _round(deck, [task.name for task in tasks], contenders, score_of)


def _contenders(boards: Sequence[Board], models: Sequence[str]) -> list[_Contender]:
    """All on the first board that has a grade of each, else each on a board that has one of it."""
    on_each = [[choose(board.rows, wanted) for wanted in models] for board in boards]
    if len({row.entrant_digest for row in on_each[0]}) < len(models):
        raise UserError("a model is named twice: a round is between different entrants")
    for board, rows in zip(boards, on_each, strict=True):
        if all(map(_is_graded, rows)):
            return [_Contender(board, row) for row in rows]
    return [_own(boards, [rows[place] for rows in on_each]) for place in range(len(models))]


def _own(boards: Sequence[Board], rows: Sequence[EntrantRow]) -> _Contender:
    pairs = list(zip(boards, rows, strict=True))
    return _Contender(*next((pair for pair in pairs if _is_graded(pair[1])), pairs[0]))


def _is_graded(row: EntrantRow) -> bool:
    return any(cell.shown and cell.shown.grade_id for cell in row.cells)


def _round(
    deck: str, tasks: Sequence[str], contenders: Sequence[_Contender], score_of: ScoreOf
) -> Round:
    rows = [contender.row for contender in contenders]
    models = tuple(row.label for row in rows)
    hardware = [
        {"hardware": c.board.hardware} if _is_graded(c.row) else {"hardware": "none graded"}
        for c in contenders
    ]
    kept = [where | obligations(row.entrant) for where, row in zip(hardware, rows, strict=True)]
    columns = {task: [row.cells[place] for row in rows] for place, task in enumerate(tasks)}
    return Round(
        round=deck,
        models=models,
        tasks={task: _task(models, cells, score_of) for task, cells in columns.items()},
        origin="archive",
        conditions=side_by_side(kept) | cell_conditions(rows),
        remarks=(
            *differences(side_by_side([particulars(row.entrant) for row in rows]), models),
            "Points are from measured items alone: judged ones are marked, and count for nobody.",
        ),
    )


def _task(models: Sequence[str], cells: Sequence[Cell], score_of: ScoreOf) -> RoundTask:
    graded = [score_of(cell.shown) if cell.shown else None for cell in cells]
    scores = [one.score if one else None for one in graded]
    known = next((score for score in scores if score), None)
    weights = {d.dimension: d.weight for d in known.dimensions} if known else {}
    overall = tuple(_overall(c, s) for c, s in zip(cells, scores, strict=True))
    return RoundTask(
        dimensions={name: _dimension(cells, scores, name) for name in weights},
        weights=weights,
        overall=overall,
        showings=tuple(_showing(c, g) for c, g in zip(cells, graded, strict=True)),
        swings=tuple(_swings(models, overall, list(map(_fair, cells, scores)))),
    )


def _overall(cell: Cell, score: Score | None) -> float | None:
    """None where nothing is known yet; nothing where what was handed in counts nothing."""
    if cell.shown is None or cell.shown.excluded:
        return None
    if cell.shown.state in _COUNTS_NOTHING:
        return 0.0
    return score.points if score else None


def _dimension(
    cells: Sequence[Cell], scores: Sequence[Score | None], name: str
) -> tuple[float | None, ...]:
    """Points of each in one dimension; what nobody could be measured in is nobody's."""
    measured = [
        next((d.points for d in score.dimensions if d.dimension == name), None) if score else None
        for score in scores
    ]
    if all(points is None for points in measured):
        return tuple(measured)
    return tuple(
        0.0 if cell.shown and cell.shown.state in _COUNTS_NOTHING else points
        for cell, points in zip(cells, measured, strict=True)
    )


def _showing(cell: Cell, graded: _Graded | None) -> Showing:
    shown = cell.shown
    if shown is None:
        return Showing(standing="no attempt")
    standing = shown.excluded or f"{shown.state.replace('_', ' ')}: {shown.detail or shown.why}"
    if graded is None:
        return Showing(attempt_id=shown.attempt_id, standing=standing)
    score, counts = graded.score, shown.score if shown.counts else None
    figures = {item.item: item for item in graded.grade.items}

    def evidence(items: Iterable[ItemScore]) -> tuple[Evidence, ...]:
        return tuple(_evidence(item, figures.get(item.item)) for item in items)

    marked = [item for item in score.items if item.mark is not None]
    flag = [Evidence(item="audit", dimension="evaluation", figure=shown.detail)]
    return Showing(
        attempt_id=shown.attempt_id,
        standing=standing,
        low=counts.low if counts else None,
        high=counts.high if counts else None,
        milliseconds=shown.score.milliseconds if shown.score else None,
        roofline=shown.score.roofline if shown.score else None,
        strengths=evidence(_best(marked)),
        weaknesses=evidence(_worst(marked)),
        defects=(
            *(flag if shown.state is BoardState.FLAGGED else []),
            *evidence(item for item in marked if item.item in score.capped_by),
        ),
        not_judged=score.not_judged,
        not_measured=evidence(i for i in score.items if i.state == "not measurable"),
    )


def _best(marked: Sequence[ItemScore]) -> list[ItemScore]:
    full = [item for item in marked if (item.mark or 0.0) >= 1.0]
    return sorted(full, key=lambda item: -item.weight)[:_SHOWN_ITEMS]


def _worst(marked: Sequence[ItemScore]) -> list[ItemScore]:
    short = [item for item in marked if (item.mark or 0.0) < 1.0]
    return sorted(short, key=lambda item: -item.weight * (1.0 - (item.mark or 0.0)))[:_SHOWN_ITEMS]


def _evidence(item: ItemScore, found: ItemMeasurement | None) -> Evidence:
    """The item with its figures: cases passed, the measured value, and what was seen."""
    figures = []
    if found and item.mark is not None:
        figures.append(
            f"{found.passed}/{found.total} passed" if found.total else f"{item.mark:.0%}"
        )
        if found.value is not None:
            figures.append(f"{found.value:.4g} {found.unit}".strip())
    figure = "; ".join([*figures, *([item.detail] if item.detail else [])])
    return Evidence(item=item.item, dimension=item.dimension, figure=figure)


def _swings(
    models: Sequence[str], overall: Sequence[float | None], scores: Sequence[Score | None]
) -> Iterator[str]:
    """The items that pulled against the winner of each two, in points of the overall."""
    for i, j in combinations(range(len(models)), 2):
        place = task_winner([overall[i], overall[j]])
        if place is None:
            continue
        first, second = (i, j) if place == 0 else (j, i)
        winner, loser = scores[first], scores[second]
        if winner is None or loser is None:
            continue
        for item, gain in _against(winner, loser)[:_SHOWN_SWINGS]:
            yield f"{item} is worth {gain:.1f} points to {models[second]}"
        if loser.capped_by or winner.capped_by:
            yield from _caps((models[first], winner), (models[second], loser))


def _caps(*each: tuple[str, Score]) -> Iterator[str]:
    for model, score in each:
        if score.capped_by:
            yield f"{model} is capped for a critical defect: {', '.join(score.capped_by)}"


def _against(winner: Score, loser: Score) -> list[tuple[str, float]]:
    """Items in which the loser has the better mark, and what that is worth; the largest first."""
    worth = _worth(winner)
    marks = {item.item: item.mark for item in winner.items}
    gains = [
        (item.item, (item.mark - (marks[item.item] or 0.0)) * worth[item.item])
        for item in loser.items
        if item.mark is not None and item.item in worth
    ]
    return sorted(((i, gain) for i, gain in gains if gain > _NOISE), key=lambda g: (-g[1], g[0]))


def _worth(score: Score) -> Mapping[str, float]:
    """What a full mark of each measured item adds to the overall, before any cap."""
    weights = {d.dimension: d.weight for d in score.dimensions if d.points is not None}
    total = sum(weights.values())
    marked = [item for item in score.items if item.mark is not None]
    within = {name: sum(i.weight for i in marked if i.dimension == name) for name in weights}
    return {
        i.item: 100 * weights[i.dimension] / total * i.weight / within[i.dimension] for i in marked
    }


def _fair(cell: Cell, score: Score | None) -> Score | None:
    """None where the marks count nothing: nothing pulled for a flagged attempt."""
    return None if cell.shown and cell.shown.state in _COUNTS_NOTHING else score
