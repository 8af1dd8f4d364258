"""What a sweep says while it runs: a live view on a terminal, plain lines, or lines of JSON."""

import json
import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.agents.base import Standing
from orchestrator.models.accounts import Account
from orchestrator.models.base import ModelReply
from orchestrator.output import console, printable
from orchestrator.sessionview import Row, View

if TYPE_CHECKING:
    from rich.console import Console

Mode = Literal["live", "plain", "json"]

REFRESH_HZ = 2.0
"""Of the live view. Rendering costs milliseconds of the cores that sessions share."""


class Progress:
    """Thread-safe; sessions report here."""

    def __init__(self, *, live: bool = False, mode: Mode | None = None) -> None:
        self.mode: Mode = mode or ("live" if live else "plain")
        self._rows: dict[str, Row] = {}
        self._lock = threading.RLock()  # a signal handler may speak while its thread speaks
        self._started = time.monotonic()
        self._ended_here = 0
        self._resumable = 0
        self._orders = 0
        self._past = Row("", "", "", 0)  # the sum of the sessions that ended
        self._unknown_costs = 0
        self.accounts: tuple[Account, ...] = ()
        self.done = 0
        self.total = 0

    def say(self, text: str) -> None:
        """One line that stays."""
        self._emit(printable(text), "note", said=text)

    def begin(self, session: str, entrant: str, task: str, *, resumed: bool, gpu: str = "") -> None:
        """A session starts."""
        with self._lock:
            self._orders += 1
            state = "resumed" if resumed else "running"
            self._rows[session] = Row(entrant, task, state, self._orders, gpu=gpu)
        if self.mode != "live":
            word = "resumes" if resumed else "starts"
            self._emit_of(session, f"{entrant} x {task}: {word}", word)

    def step(self, session: str, at: Standing) -> None:
        """A session finished a step."""
        tokens, tool = at.usage.input_tokens + at.usage.output_tokens, _last_tool(at)
        with self._lock:
            row = self._rows[session]
            row.step, row.cost_usd, row.tokens = at.step, at.cost_usd, tokens
            row.tool = tool or row.tool
            row.moved_at = time.monotonic()
        if self.mode == "json":
            self._emit_of(session, "", "step")

    def bench(self, session: str, mean: float | None) -> None:
        """A session measured its submission; the best of its figures is shown."""
        if mean is not None:
            with self._lock:
                row = self._rows[session]
                row.best_ms = mean if row.best_ms is None else min(mean, row.best_ms)

    def end(self, session: str, word: str, *, finished: bool) -> None:
        """A session ended; one that is to be resumed is not done."""
        with self._lock:
            row = self._rows[session]
            self.done += finished
            self._ended_here += finished
            self._resumable += not finished
            self._past.step += row.step
            self._past.tokens += row.tokens
            self._past.cost_usd = (self._past.cost_usd or 0.0) + (row.cost_usd or 0.0)
            self._unknown_costs += row.cost_usd is None
        if self.mode != "live":
            said = f"{row.entrant} x {row.task}: {word} after {row.step} steps"
            self._emit_of(session, said, "ends", end=word, finished=finished)
        with self._lock:
            del self._rows[session]

    def view(self) -> View:
        """What there is to see now."""
        with self._lock:
            rows, now = tuple(self._rows.values()), time.monotonic()
            known = [row.cost_usd for row in rows if row.cost_usd is not None]
            return View(
                rows=rows,
                now=now,
                elapsed_s=now - self._started,
                done=self.done,
                total=self.total,
                resumable=self._resumable,
                steps=self._past.step + sum(row.step for row in rows),
                tokens=self._past.tokens + sum(row.tokens for row in rows),
                cost_usd=(self._past.cost_usd or 0.0) + sum(known),
                unknown_costs=self._unknown_costs + len(rows) - len(known),
                eta_s=self._eta_s(now),
                accounts=tuple(map(_account_words, self.accounts)),
            )

    @contextmanager
    def shown(self, screen: "Console | None" = None) -> Iterator[None]:
        """Show the live view for the duration; nothing where there is no terminal."""
        if self.mode != "live":
            yield
            return
        from rich.live import Live  # noqa: PLC0415 - start-up time

        from orchestrator.liveview import LiveView  # noqa: PLC0415

        with Live(
            LiveView(self.view),
            console=screen or console(stderr=True),
            refresh_per_second=REFRESH_HZ,
            transient=True,
            vertical_overflow="crop",
        ):
            yield

    def _eta_s(self, now: float) -> float | None:
        """By the pace of this run; None until one of its sessions has finished."""
        if not self._ended_here:
            return None
        return (now - self._started) / self._ended_here * max(0, self.total - self.done)

    def _emit_of(self, session: str, text: str, event: str, **more: Any) -> None:
        with self._lock:
            row = self._rows[session]
            facts = {
                "session": session,
                "entrant": row.entrant,
                "task": row.task,
                "step": row.step,
                "tool": row.tool,
                "tokens": row.tokens,
                "cost_usd": row.cost_usd,
                "best_ms": row.best_ms,
                "gpu": row.gpu,
            }
            self._emit(text, event, **facts, **more)

    def _emit(self, text: str, event: str, **facts: Any) -> None:
        with self._lock:
            seconds = time.monotonic() - self._started
            line = f"[{seconds:6.1f}s] {text}"
            if self.mode == "json":
                shape = {"event": event, "s": round(seconds, 3), "done": self.done}
                line = json.dumps({**shape, "total": self.total, **facts})
            print(line, file=sys.stderr, flush=True)


def mean_ms(medians: Mapping[str, float]) -> float | None:
    """One figure of a `bench`: the geometric mean over its shapes; None where nothing was timed."""
    if not medians or min(medians.values()) <= 0:
        return None
    return math.exp(sum(map(math.log, medians.values())) / len(medians))


def _last_tool(at: Standing) -> str:
    for turn in reversed(at.conversation.turns[-3:]):
        if isinstance(turn, ModelReply) and turn.tool_calls:
            return turn.tool_calls[-1].name
    return ""


def _account_words(account: Account) -> str:
    load = account.load()
    words = f"{account.name}: {load.in_flight} of {load.permits} calls"
    words += f", {load.waiting} waiting" if load.waiting else ""
    words += f", refused {load.refusals} times" if load.refusals else ""
    return words + (f", paused {load.paused_s:.0f} s" if load.paused_s >= 1 else "")
