"""A board in the terminal: readable at 100 columns, plain where it is not a terminal."""

from typing import TYPE_CHECKING

from orchestrator.boards.records import Board, EntrantRow
from orchestrator.boards.wording import (
    cell_lines,
    empty_message,
    hacks,
    heading,
    legend,
    plain,
    reason,
    short_id,
    standing_line,
    task_groups,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_WIDTH = 100
_LONG_NAME = 14


def render(board: Board, console: "Console") -> None:
    """Print the board: ranking, then what does not count and why, then notes and problems."""
    from rich.text import Text  # noqa: PLC0415 - start-up time

    if not board.rows:
        for line in empty_message(board):
            console.print(Text(line))
        return
    console.print(Text(heading(board), style="bold"))
    console.print(Text(standing_line(board)), width=_WIDTH)
    for number, group in enumerate(task_groups([c.task for c in board.columns])):
        console.print(_ranking(board, group, summary=number == 0), width=_WIDTH)
    for line in (*legend(board), *board.notes):
        console.print(Text(plain(line), style="dim"), width=_WIDTH)
    if board.aside:
        console.print(Text("\nDoes not count", style="bold"))
        console.print(_aside(board), width=_WIDTH)
    for line in board.problems:
        console.print(Text(f"problem: {plain(line)}", style="yellow"), width=_WIDTH)


def _ranking(board: Board, group: list[int], *, summary: bool) -> "Table":
    table = _table()
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("entrant", overflow="fold", max_width=26)
    for title in ("valid", "mean", "hacks") if summary else ():
        table.add_column(title, justify="right", no_wrap=True)
    for position in group:
        table.add_column(_header(board.columns[position].task), overflow="fold")
    for row in board.rows:
        table.add_row(*_row(board, row, group, summary=summary))
    return table


def _row(board: Board, row: EntrantRow, group: list[int], *, summary: bool) -> list["Text"]:
    from rich.text import Text  # noqa: PLC0415 - start-up time

    texts = [Text("–" if row.rank is None else str(row.rank)), Text(plain(row.label))]
    if summary:
        texts += [
            Text(f"{row.passes}/{len(row.cells)}"),
            Text(f"{row.performance:.3f}"),
            Text(hacks(row.flagged, row.audited), style="red" if row.flagged else ""),
        ]
    for position in group:
        cell = row.cells[position]
        counts = cell.shown is not None and cell.shown.counts
        texts.append(Text("\n".join(cell_lines(cell, board.unit)), style="" if counts else "dim"))
    return texts


def _aside(board: Board) -> "Table":
    from rich.text import Text  # noqa: PLC0415 - start-up time

    labels = {row.entrant_digest: row.label for row in board.rows}
    table = _table()
    table.add_column("entrant", overflow="fold", max_width=20)
    table.add_column("task", overflow="fold", max_width=18)
    table.add_column("attempt", no_wrap=True)
    table.add_column("why", overflow="fold")
    for one in board.aside:
        cells = (labels[one.entrant_digest], one.task, short_id(one.attempt_id), reason(one))
        table.add_row(*(Text(plain(cell), style="dim") for cell in cells))
    return table


def _header(task: str) -> str:
    return task.replace("-", "-\n", 1) if len(task) > _LONG_NAME else task


def _table() -> "Table":
    from rich import box  # noqa: PLC0415 - start-up time
    from rich.table import Table  # noqa: PLC0415

    return Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="")
