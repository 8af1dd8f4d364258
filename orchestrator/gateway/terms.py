"""What a session may do at the gateway, and what it leaves: exchanges, totals, findings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from orchestrator.models.accounts import Account
from orchestrator.models.base import RetryNotice
from orchestrator.models.entry import ModelEntry
from transcripts.records import Usage


class Refused(Exception):
    """A call that is not made and not to be tried again: a cap is reached, or a stop asked."""

    def __init__(self, word: str, message: str) -> None:
        super().__init__(message)
        self.word, self.message = word, message


class Desk(Protocol):
    """Answers ``/session/VERB``; see `orchestrator.turns.desk.SessionDesk`."""

    def ask(self, verb: str, body: bytes) -> tuple[int, bytes]:
        """Status and JSON body."""
        ...


@dataclass(frozen=True)
class Exchange:
    """One call as it went over the wire. Bytes; no key is in them."""

    number: int  # of the session, from 0
    dialect: str
    path: str
    received: bytes  # as the session sent it
    sent: bytes  # as the provider got it; empty where nothing was sent
    rewrites: tuple[str, ...]  # names of what was changed in between
    status: int  # 0 where no answer came
    response: bytes
    started_at: datetime
    latency_s: float
    tries: tuple[RetryNotice, ...] = ()  # the failed ones before
    usage: Usage | None = None  # None where the answer told none
    cost_usd: float | None = None
    served_model: str | None = None
    error: str = ""  # why it is not whole, or was not made
    error_kind: str = ""  # a kind of `models.errors`, "refused" or "hung_up"
    is_billed: bool = True


@dataclass(frozen=True)
class Totals:
    """What a session has spent."""

    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0  # None once a part of it is unknown
    calls: int = 0
    failed_calls: int = 0


@dataclass(frozen=True)
class GatewayFinding:
    """Something about the provider that a reader of the session must know."""

    mechanism: Literal["served-model", "silent-truncation"]
    detail: str


@dataclass(frozen=True)
class Tunnelled:
    """A connection of the session to an allow-listed host, or the wish for one."""

    host: str
    port: int
    sent: int = 0  # bytes
    received: int = 0
    refused: str = ""  # why it was not made


@dataclass(frozen=True)
class Terms:
    """The terms of one session. ``key`` is added outside and never seen inside."""

    session_id: str
    entry: ModelEntry
    base_url: str
    key: str
    record: Callable[[Exchange], None]
    """Keeps an exchange before its end reaches the session; raising ends the call as unanswered."""

    before_call: Callable[[], None] = lambda: None
    """Raises Refused where no further call is to be made."""

    side_models: Literal["map", "refuse"] = "map"
    allow_provider_tools: bool = False
    desk: Desk | None = None
    on_tunnel: Callable[[Tunnelled], None] = lambda _: None
    account: Account | None = None  # whose permits the calls need; None: unbounded
    whole_answers: bool = False
    """Pass an answer on once all of it is there: broken ones are asked again outside, for sessions
    that give up at the first."""
