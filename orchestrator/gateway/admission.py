"""One session at the gateway: its token, its account of calls, its findings."""

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.gateway.terms import Exchange, GatewayFinding, Refused, Terms, Totals
from orchestrator.models.served import same_model
from transcripts.records import Usage

_GROWN = 1.2
"""Growth of a request's bytes after which its prompt must have more tokens than before."""

_KEEP_S = 30.0
"""How long the end of a session waits for its open calls to be kept."""

_LEAST_BYTES = 40_000
"""Of a request, below which nothing is said of truncation: tools and prompts weigh too much."""


class Admission:
    """What a session was given. Thread-safe."""

    def __init__(self, terms: Terms, socket: Path, forget: Callable[[str], None]) -> None:
        self.terms, self.socket, self.token = terms, socket, secrets.token_urlsafe(32)
        self._forget = forget
        self._lock = threading.Lock()
        self._next = self._unkept = 0  # exchanges: begun, and of those not kept yet
        self._totals = Totals()
        self._findings: dict[str, GatewayFinding] = {}
        self._largest: tuple[int, int] = (0, 0)  # bytes and prompt tokens of the largest request
        self._tasks: set[asyncio.Task[Any]] = set()
        self._idle = threading.Condition(self._lock)
        self.closing = threading.Event()  # set once the session is over

    def number(self) -> int:
        """Of the next exchange."""
        with self._lock:
            self._next += 1
            self._unkept += 1
            return self._next - 1

    def keep(self, exchange: Exchange) -> None:
        """Record an exchange, then count it. Raises what `Terms.record` raises."""
        try:
            self.terms.record(exchange)
            with self._lock:
                self._count(exchange)
                self._look(exchange)
        finally:
            with self._idle:
                self._unkept -= 1
                self._idle.notify_all()

    def totals(self) -> Totals:
        """What was spent so far."""
        with self._lock:
            return self._totals

    @property
    def open_calls(self) -> int:
        """Calls that somebody works on now."""
        with self._lock:
            return len(self._tasks)

    def findings(self) -> tuple[GatewayFinding, ...]:
        """What was seen of the provider, each kind once."""
        with self._lock:
            return tuple(self._findings.values())

    @contextmanager
    def calling(self) -> Iterator[None]:
        """The current task works for the session; `close` cancels it. Raises Refused after that."""
        task = asyncio.current_task()
        assert task is not None, "calls are made on the gateway's loop"
        with self._lock:
            if self.closing.is_set():
                raise Refused("session_over", "the session ended")
            self._tasks.add(task)
        try:
            yield
        finally:
            with self._lock:
                self._tasks.discard(task)

    def close(self) -> None:
        """The token is worth nothing from now on, and open calls are cut and kept. Idempotent.

        Not to be called on the gateway's own loop.
        """
        self._forget(self.token)
        with self._lock:
            self.closing.set()
            for task in self._tasks:
                task.get_loop().call_soon_threadsafe(task.cancel)
        with self._idle:
            self._idle.wait_for(lambda: self._unkept == 0, _KEEP_S)

    def _count(self, exchange: Exchange) -> None:
        before = self._totals
        failed = bool(exchange.error) or exchange.status >= 400
        known = before.cost_usd is not None and (exchange.cost_usd is not None or failed)
        self._totals = replace(
            before,
            usage=before.usage + (exchange.usage or Usage()),
            cost_usd=(before.cost_usd or 0.0) + (exchange.cost_usd or 0.0) if known else None,
            calls=before.calls + 1,
            failed_calls=before.failed_calls + failed,
        )

    def _look(self, exchange: Exchange) -> None:
        asked, served = self.terms.entry.model, exchange.served_model
        if served and not same_model(asked, served):
            self._find("served-model", f"asked for `{asked}`, served by `{served}`")
        usage = exchange.usage
        if usage is None or exchange.error:
            return
        size = len(exchange.sent)
        prompt = usage.input_tokens + usage.cache_read_tokens
        prompt += usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
        most, tokens = self._largest
        if most > _LEAST_BYTES and size > _GROWN * most and prompt <= tokens:
            self._find(
                "silent-truncation",
                f"a request of {size} bytes was billed {prompt} prompt tokens, one of {most} bytes "
                f"{tokens} before: the provider may cut what it is sent",
            )
        if size > most:
            self._largest = size, prompt

    def _find(self, mechanism: str, detail: str) -> None:
        found = GatewayFinding(mechanism, detail)  # type: ignore[arg-type]
        self._findings.setdefault(mechanism, found)
