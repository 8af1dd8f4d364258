"""What a person sees while a sweep runs: a live table on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.agents.base import Standing
from orchestrator.models.base import ModelReply
from orchestrator.output import cell, console, printable

if TYPE_CHECKING:
    from rich.table import Table

_MOST_ROWS = 30
"""Rows of the live table; more sessions are counted in its last line."""


@dataclass
class _Row:
    entrant: str
    task: str
    state: str = "starting"
    step: int = 0
    tool: str = ""
    tokens: int = 0
    cost_usd: float | None = 0.0


class Progress:
    """Thread-safe; sessions report here. ``live`` False prints a line a change of state."""

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._rows: dict[str, _Row] = {}
        self._lock = threading.RLock()  # a signal handler may speak while its thread speaks
        self._started = time.monotonic()
        self.done = 0
        self.total = 0

    def say(self, text: str) -> None:
        """One line that stays."""
        with self._lock:
            seconds = time.monotonic() - self._started
            print(f"[{seconds:6.1f}s] {printable(text)}", file=sys.stderr, flush=True)

    def begin(self, session: str, entrant: str, task: str, *, resumed: bool) -> None:
        """A session starts."""
        with self._lock:
            self._rows[session] = _Row(entrant, task, "resumed" if resumed else "running")
        if not self._live:
            self.say(f"{entrant} x {task}: {'resumes' if resumed else 'starts'}")

    def step(self, session: str, at: Standing) -> None:
        """A session finished a step."""
        with self._lock:
            row = self._rows[session]
            row.step, row.cost_usd = at.step, at.cost_usd
            row.tokens = at.usage.input_tokens + at.usage.output_tokens
            row.tool = _last_tool(at)

    def end(self, session: str, word: str, *, finished: bool) -> None:
        """A session ended; one that is to be resumed is not done."""
        with self._lock:
            row = self._rows.pop(session)
            self.done += finished
        if not self._live:
            self.say(f"{row.entrant} x {row.task}: {word} after {row.step} steps")

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the live table for the duration; nothing where there is no terminal."""
        if not self._live:
            yield
            return
        from rich.live import Live  # noqa: PLC0415 - start-up time

        with Live(get_renderable=self._table, console=console(stderr=True), refresh_per_second=4):
            yield

    def _table(self) -> "Table":
        from rich.table import Table  # noqa: PLC0415

        elapsed = time.monotonic() - self._started
        table = Table(title=f"{self.done}/{self.total} attempts, {elapsed:.0f} s", expand=False)
        for name in ("entrant", "task", "state", "step", "last tool", "tokens", "cost"):
            table.add_column(name)
        with self._lock:
            rows = list(self._rows.values())
        for row in rows[:_MOST_ROWS]:
            cost = "unknown" if row.cost_usd is None else f"${row.cost_usd:.4f}"
            words = (row.entrant, row.task, row.state, str(row.step), row.tool, f"{row.tokens:,}")
            table.add_row(*map(cell, (*words, cost)))
        if len(rows) > _MOST_ROWS:
            table.add_row(f"and {len(rows) - _MOST_ROWS} more", *[""] * 6)
        return table


def _last_tool(at: Standing) -> str:
    for turn in reversed(at.conversation.turns[-3:]):
        if isinstance(turn, ModelReply) and turn.tool_calls:
            return turn.tool_calls[-1].name
    return ""
