"""Two archives side by side: the same cells, paired, with what chance makes of the differences."""

from collections.abc import Iterator, Sequence

from orchestrator.boards.choose import choose
from orchestrator.boards.conditions import differences, obligations, particulars, side_by_side
from orchestrator.boards.records import Board, Cell, EntrantRow
from orchestrator.boards.states import BoardState
from orchestrator.boards.stats import bootstrap_mean, mean, sign_test
from orchestrator.errors import UserError
from transcripts.records import Record

_NOT_YET = frozenset({BoardState.UNGRADED, BoardState.PENDING, BoardState.UNAUDITED})
LABELS = ("first", "second")


class PairedCell(Record):
    """One cell in both archives. What is not valid counts 0."""

    entrant: str
    task: str
    first: float
    second: float
    difference: float  # second less first
    tie: bool  # the 95% intervals overlap


class Paired(Record):
    """The comparison of two archives."""

    unit: str
    cells: tuple[PairedCell, ...]
    wins: int  # cells in which the second is better beyond a tie
    losses: int
    ties: int
    mean_difference: float
    low: float  # bootstrap, 95%
    high: float
    sign_test_p: float
    unfair: tuple[str, ...]
    remarks: tuple[str, ...]


def compare_boards(first: Board, second: Board, models: Sequence[str] = ()) -> Paired:
    """Pair the cells of two boards of one deck.

    No ``models``: entrants of equal digest, else of equal name. One: that one in both. Two: the
    first of the first board against the second of the second.

    Raises UnknownEntrant; UserError when nothing can be paired.
    """
    rows = _paired_rows(first, second, models)
    found = [cell for a, b in rows for cell in _cells(a, b)]
    if not found:
        raise UserError(
            "no cell is decided in both archives: name a model of each "
            "(`compare --archive A --with B MODEL_A MODEL_B`), or grade and audit what is there"
        )
    gains = [cell.difference for cell in found]
    wins = sum(cell.difference > 0 and not cell.tie for cell in found)
    losses = sum(cell.difference < 0 and not cell.tie for cell in found)
    low, high = bootstrap_mean(gains)
    return Paired(
        unit=first.unit,
        cells=tuple(found),
        wins=wins,
        losses=losses,
        ties=len(found) - wins - losses,
        mean_difference=mean(gains),
        low=low,
        high=high,
        sign_test_p=sign_test(wins, losses),
        unfair=tuple(dict.fromkeys(_unfair(first, second, rows))),
        remarks=tuple(dict.fromkeys(_remarks(rows))),
    )


def _paired_rows(
    first: Board, second: Board, models: Sequence[str]
) -> list[tuple[EntrantRow, EntrantRow]]:
    if models:
        return [(choose(first.rows, models[0]), choose(second.rows, models[-1]))]
    there = {row.entrant_digest: row for row in second.rows}
    same = [(row, there[row.entrant_digest]) for row in first.rows if row.entrant_digest in there]
    if same:
        return same
    names = {row.label for row in second.rows}
    return [(row, choose(second.rows, row.label)) for row in first.rows if row.label in names]


def _cells(first: EntrantRow, second: EntrantRow) -> Iterator[PairedCell]:
    name = first.label if first.label == second.label else f"{first.label} / {second.label}"
    for a, b in zip(first.cells, second.cells, strict=True):
        if _is_decided(a) and _is_decided(b):
            left, right = _value(a), _value(b)
            yield PairedCell(
                entrant=name,
                task=a.task,
                first=left,
                second=right,
                difference=right - left,
                tie=_is_tie(a, b),
            )


def _is_decided(cell: Cell) -> bool:
    shown = cell.shown
    return shown is not None and not shown.excluded and shown.state not in _NOT_YET


def _value(cell: Cell) -> float:
    score = cell.shown.score if cell.shown and cell.shown.counts else None
    return score.value if score else 0.0


def _is_tie(a: Cell, b: Cell) -> bool:
    left = a.shown.score if a.shown and a.shown.counts else None
    right = b.shown.score if b.shown and b.shown.counts else None
    if left is None or right is None:
        return _value(a) == _value(b)
    return left.interval.overlaps(right.interval)


def _unfair(
    first: Board, second: Board, rows: Sequence[tuple[EntrantRow, EntrantRow]]
) -> Iterator[str]:
    boards = [
        {"hardware": board.hardware}
        | {f"task digest of {column.task}": column.task_digest[:12] for column in board.columns}
        for board in (first, second)
    ]
    yield from differences(side_by_side(boards), LABELS)
    for pair in rows:
        conditions = side_by_side([obligations(row.entrant) for row in pair]) | cell_conditions(
            pair
        )
        yield from (f"{pair[0].label}: {line}" for line in differences(conditions, LABELS))


def cell_conditions(rows: Sequence[EntrantRow]) -> dict[str, tuple[str, ...]]:
    """Toolchain and number of attempts of every task that all the rows have a grade on."""
    conditions = {}
    for column in zip(*(row.cells for row in rows), strict=True):
        graded = [cell.shown.toolchain_digest for cell in column if cell.shown]
        if len(graded) == len(rows) and all(graded):
            task = column[0].task
            conditions[f"toolchain of {task}"] = tuple(str(digest)[:12] for digest in graded)
            conditions[f"attempts at {task}"] = tuple(str(cell.attempts) for cell in column)
    return conditions


def _remarks(rows: Sequence[tuple[EntrantRow, EntrantRow]]) -> Iterator[str]:
    for a, b in rows:
        conditions = side_by_side([particulars(row.entrant) for row in (a, b)])
        yield from (f"{a.label}: {line}" for line in differences(conditions, LABELS))
