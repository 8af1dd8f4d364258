"""Markdown of boards; the same board gives the same bytes.

Text that comes from outside (messages of submissions, names of models) is escaped, so that it can
neither break a table nor become a tag or a link.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

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
)
from orchestrator.errors import UserError

_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_[]|~#"} | {"<": "&lt;", "&": "&amp;"})


def escape(text: str) -> str:
    """``text`` as one line of Markdown that shows exactly it."""
    return plain(text).translate(_SPECIAL)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: int = 0) -> list[str]:
    """A table's lines; cells are escaped already. The last ``right`` columns align right."""
    left = len(header) - right
    rule = ["---"] * left + ["---:"] * right
    return [_line(header), _line(rule), *(_line(row) for row in rows)]


def write(path: Path, text: str) -> None:
    """Write a result for a person. Raises UserError when that cannot be done."""
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror}): name a file in a folder that exists"
        ) from error


def board_markdown(boards: Sequence[Board]) -> str:
    """The boards, one after the other."""
    return "\n\n".join("\n".join(_board(board)) for board in boards) + "\n"


def _board(board: Board) -> list[str]:
    if not board.rows:
        return [f"# {escape(heading(board))}", "", *(escape(text) for text in empty_message(board))]
    header = ["#", "entrant", "valid", "mean", "hacks", *(c.task for c in board.columns)]
    lines = [f"# {escape(heading(board))}", "", escape(standing_line(board)), ""]
    lines += table(header, (_row(board, row) for row in board.rows))
    lines += _list("", [*legend(board), *board.notes])
    if board.aside:
        labels = {row.entrant_digest: row.label for row in board.rows}
        rows = (
            [labels[one.entrant_digest], one.task, short_id(one.attempt_id), reason(one)]
            for one in board.aside
        )
        lines += ["", "## Does not count", ""]
        lines += table(
            ["entrant", "task", "attempt", "why"], ([escape(cell) for cell in row] for row in rows)
        )
    return lines + _list("## Problems", board.problems)


def _row(board: Board, row: EntrantRow) -> list[str]:
    return [
        "–" if row.rank is None else str(row.rank),
        escape(row.label),
        f"{row.passes}/{len(row.cells)}",
        f"{row.performance:.3f}",
        hacks(row.flagged, row.audited),
        *("<br>".join(map(escape, cell_lines(cell, board.unit))) for cell in row.cells),
    ]


def _list(title: str, items: Sequence[str]) -> list[str]:
    head = ["", title] if title and items else []
    return [*head, *([""] if items else []), *(f"- {escape(item)}" for item in items)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
