"""One call of a session: what was asked, what was tried, and how its end is kept."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orchestrator.gateway.admission import Admission
from orchestrator.gateway.reading import told
from orchestrator.gateway.routes import Route
from orchestrator.gateway.terms import Exchange
from orchestrator.models.base import RetryNotice
from orchestrator.models.errors import DroppedStream
from transcripts.redact import Secrets


@dataclass
class Answer:
    """What the session gets: a status, headers, and a body that is still on its way."""

    status: int
    headers: dict[str, str]
    body: AsyncIterator[bytes]


@dataclass
class Call:
    """The state of one call."""

    admission: Admission
    route: Route
    path: str
    received: bytes
    number: int
    sent: bytes = b""
    rewrites: tuple[str, ...] = ()
    tries: list[RetryNotice] = field(default_factory=list)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: float = field(default_factory=time.monotonic)

    async def keep(
        self, status: int, response: bytes, error: str = "", why: str = "", content_type: str = ""
    ) -> None:
        """Record how it ended; ``why`` is the kind of ``error``. Raises what recording raises.

        Whoever cancels the call waits for this all the same.
        """
        exchange = self._exchange(status, response, error, why, content_type)
        await asyncio.shield(asyncio.to_thread(self.admission.keep, exchange))

    def _exchange(
        self, status: int, response: bytes, error: str, why: str, content_type: str
    ) -> Exchange:
        terms = self.admission.terms
        hidden = Secrets({"key": terms.key}).replace_bytes
        found = told(self.route.dialect, content_type, response) if status == 200 else None
        if found is not None and not found.whole and not error:
            error, why = "the answer ended before it was whole", DroppedStream.kind
        usage = found.usage if found is not None else None
        if not self.route.is_billed:
            usage = None
        cost = terms.entry.cost_usd(usage) if usage is not None else None
        return Exchange(
            number=self.number,
            dialect=self.route.dialect,
            path=self.path,
            received=hidden(self.received),
            sent=hidden(self.sent),
            rewrites=self.rewrites,
            status=status,
            response=hidden(response),
            started_at=self.started_at,
            latency_s=round(time.monotonic() - self.started, 6),
            tries=tuple(self.tries),
            usage=usage,
            cost_usd=cost if self.route.is_billed else 0.0,
            served_model=found.model if found is not None else None,
            error=error,
            error_kind=why,
            is_billed=self.route.is_billed,
        )
