"""The live view of a sweep: a row a session, as many as the terminal holds, and the totals."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from orchestrator.output import cell
from orchestrator.sessionview import Row, View

QUIET_S = 300.0
"""A session without a finished step for longer than this is shown first."""

_FRAME_LINES = 5
"""Lines that are not sessions: title, header and its rule, the rest, one to spare."""

WIDE = ("entrant", "task", "state", "last tool", "GPU", "step", "tokens", "cost", "best ms")
NARROW = ("entrant", "task", "step", "cost")
_FIGURES = ("step", "tokens", "cost", "best ms")
_WIDE_FROM = 76
"""Columns of a terminal from which all that is known of a session has room."""


class LiveView:
    """A rich renderable that draws whatever ``see`` gives, at the size of the console."""

    def __init__(self, see: Callable[[], View]) -> None:
        self._see = see

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        view = self._see()
        height = options.height or options.max_height
        accounts = view.accounts[: max(0, height // 8)]
        room = max(1, height - _FRAME_LINES - len(accounts))
        shown = relevant(view.rows, room, view.now)
        yield Text(title(view), style="bold", no_wrap=True, overflow="ellipsis")
        yield _table(shown, view.now, options.max_width < _WIDE_FROM)
        if len(shown) < len(view.rows):
            hidden = {id(row) for row in shown}
            rest = [row for row in view.rows if id(row) not in hidden]
            yield Text(rest_line(rest, view.now), no_wrap=True, overflow="ellipsis")
        for line in accounts:
            yield Text.assemble(cell(line), style="dim", no_wrap=True, overflow="ellipsis")


def title(view: View) -> str:
    """The totals in one line."""
    cost = f"${view.cost_usd:.2f}"
    if view.unknown_costs:
        cost += f" and {view.unknown_costs} unknown"
    left = "unknown" if view.eta_s is None else duration(view.eta_s)
    later = f", {view.resumable} to be resumed" if view.resumable else ""
    return (
        f"{view.done}/{view.total} attempts{later}, {len(view.rows)} running, "
        f"{view.steps:,} steps, {view.tokens:,} tokens, {cost}, "
        f"{duration(view.elapsed_s)}, ETA {left}"
    )


def relevant(rows: Sequence[Row], room: int, now: float) -> list[Row]:
    """The rows that are shown: the quiet ones, then those with the latest steps, in start order."""
    if len(rows) <= room:
        return sorted(rows, key=lambda row: row.order)
    quiet = sorted((row for row in rows if is_quiet(row, now)), key=lambda row: row.moved_at)
    lively = sorted(
        (row for row in rows if not is_quiet(row, now)), key=lambda row: (-row.step, row.order)
    )
    return sorted([*quiet, *lively][:room], key=lambda row: row.order)


def is_quiet(row: Row, now: float) -> bool:
    """True when no step was finished for long."""
    return now - row.moved_at > QUIET_S


def state_of(row: Row, now: float) -> str:
    """One word or two."""
    return f"quiet {duration(now - row.moved_at)}" if is_quiet(row, now) else row.state


def rest_line(rest: Iterable[Row], now: float) -> str:
    """What is not shown, by state."""
    states = Counter("quiet" if is_quiet(row, now) else row.state for row in rest)
    words = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return f"and {states.total()} more: {words}"


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 05`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d}"


def _table(rows: Sequence[Row], now: float, narrow: bool) -> Table:
    table = Table(box=None, expand=False, pad_edge=False, header_style="underline")
    for column in NARROW if narrow else WIDE:
        side: Literal["left", "right"] = "right" if column in _FIGURES else "left"
        table.add_column(column, no_wrap=True, overflow="ellipsis", justify=side)
    for row in rows:
        words = _words(row, now)
        table.add_row(*(cell(words[column]) for column in (NARROW if narrow else WIDE)))
    return table


def _words(row: Row, now: float) -> dict[str, str]:
    return {
        "entrant": row.entrant,
        "task": row.task,
        "state": state_of(row, now),
        "last tool": row.tool,
        "GPU": row.gpu or "-",
        "step": str(row.step),
        "tokens": f"{row.tokens:,}",
        "cost": "unknown" if row.cost_usd is None else f"${row.cost_usd:.3f}",
        "best ms": "-" if row.best_ms is None else f"{row.best_ms:.4g}",
    }
