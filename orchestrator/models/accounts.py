"""Adaptive concurrency per provider account, shared by all sessions of this process.

A provider limits an account (a host and a key), not a model or a session. Calls of one account get
permits, first come first served. Their number starts small, grows while calls succeed and all of
it is used (doubling a round until the first refusal, by one a round after it), and halves when the
provider says 429 or overloaded. A refusal also holds back the account's other calls for as long as
the provider asks; a burst of refusals of calls that were in flight together counts as one.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar
from urllib.parse import urlsplit

from orchestrator.models.errors import Interrupted, ModelError, OutOfQuota, Overloaded, RateLimited

T = TypeVar("T")

START = 4
"""Permits at first: what the strictest providers' first usage tiers bear."""

LONGEST_PAUSE_S = 60.0
"""Other calls are held back at most this long after a refusal: then one of them asks again."""

_LOOK_S = 0.5
"""How often a waiting call looks whether its session is to stop."""


@dataclass(frozen=True)
class Load:
    """Where an account stands, for people and for whoever starts sessions."""

    permits: int
    in_flight: int
    waiting: int
    refusals: int  # 429 or overloaded so far
    paused_s: float  # until the next call may go, as the provider asked


class Account:
    """The permits of one account. Threads share it."""

    def __init__(
        self,
        name: str,
        *,
        start: int = START,
        ceiling: int = 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._clock = clock
        self._permits = float(start)
        self._ceiling = ceiling
        self._in_flight = 0
        self._sessions = 0
        self._queue: deque[threading.Condition] = deque()  # one a waiting call, woken one by one
        self._lock = threading.Lock()
        self._calm = False  # True after the first refusal: growth is slow from then on
        self._last_cut = -1.0
        self._paused_until = 0.0
        self._refusals = 0

    def call(self, once: Callable[[], T], stopping: threading.Event | None = None) -> T:
        """Run one try of a call under a permit, and learn from how it ends.

        Raises Interrupted when ``stopping`` is set while waiting, and whatever ``once`` raises.
        """
        started = self.enter(stopping)
        try:
            answer = once()
        except BaseException as error:
            self.leave(started, error)
            raise
        self.leave(started)
        return answer

    def leave(self, started: float, error: BaseException | None = None) -> None:
        """A try that was let in at ``started`` has ended, by ``error`` where it failed."""
        if error is None:
            self._succeeded()
        elif isinstance(error, RateLimited | Overloaded) and not isinstance(error, OutOfQuota):
            self._refused(error, started)  # an empty account, in turn, is no busy one
        self._release()

    def load(self) -> Load:
        """Where it stands now."""
        with self._lock:
            return Load(
                int(self._permits),
                self._in_flight,
                len(self._queue),
                self._refusals,
                max(0.0, self._paused_until - self._clock()),
            )

    def open_up(self, permits: int) -> None:
        """Begin with at least this many permits: a person chose the number of sessions."""
        with self._lock:
            self._ceiling = max(self._ceiling, permits)
            if not self._calm:
                self._permits = max(self._permits, float(permits))
            self._wake()

    def set_ceiling(self, ceiling: int) -> None:
        """Never more permits than this."""
        with self._lock:
            self._ceiling = ceiling
            self._permits = min(self._permits, float(ceiling))

    def enter_session(self, *, always: bool = False) -> bool:
        """Count one more session; False (and not counted) when it would have no permit."""
        with self._lock:
            if not always and self._sessions >= int(self._permits):
                return False
            self._sessions += 1
            return True

    def leave_session(self) -> None:
        """A session ended."""
        with self._lock:
            self._sessions -= 1

    # --- permits -------------------------------------------------------------------------------

    def enter(self, stopping: threading.Event | None = None) -> float:
        """Wait for a permit; when it was given, for `leave`. Raises Interrupted; see `call`."""
        ticket = threading.Condition(self._lock)
        with self._lock:
            self._queue.append(ticket)
            try:
                while not self._may_go(ticket):
                    if stopping is not None and stopping.is_set():
                        raise Interrupted("the session is stopping; its model call was not made")
                    ticket.wait(self._patience_s())
                self._in_flight += 1
            finally:
                self._queue.remove(ticket)
                self._wake()
            return self._clock()

    def _wake(self) -> None:
        """Let the first in the line look again; the rest would wake for nothing."""
        if self._queue:
            self._queue[0].notify()

    def _may_go(self, ticket: threading.Condition) -> bool:
        return (
            self._queue[0] is ticket
            and self._in_flight < int(self._permits)
            and self._clock() >= self._paused_until
        )

    def _patience_s(self) -> float:
        pause = self._paused_until - self._clock()
        return min(pause, _LOOK_S) if pause > 0 else _LOOK_S

    def _release(self) -> None:
        with self._lock:
            self._in_flight -= 1
            self._wake()

    def _succeeded(self) -> None:
        with self._lock:
            used = max(self._in_flight, self._sessions)
            if used >= int(self._permits):  # what is not used proves nothing
                gain = 1.0 / self._permits if self._calm else 1.0
                self._permits = min(self._permits + gain, float(self._ceiling))
                self._wake()

    def _refused(self, error: ModelError, started: float) -> None:
        with self._lock:
            now = self._clock()
            self._refusals += 1
            pause = min(error.retry_after_s or 0.0, LONGEST_PAUSE_S)
            self._paused_until = max(self._paused_until, now + pause)
            if started <= self._last_cut:
                return  # it was in flight when the last refusal came: the same news
            self._calm = True
            self._last_cut = now
            self._permits = max(1.0, min(self._permits, float(self._in_flight)) / 2)


@cache
def account(host: str, key: str | None) -> Account:
    """The account of this process for a host (with its port) and a key's variable."""
    return Account(f"{host} ({key})" if key else host)


def account_of(base_url: str | None, key: str | None) -> Account:
    """The account that a model is asked through; built-in models share one."""
    return account(urlsplit(base_url).netloc.rpartition("@")[2] if base_url else "scripted", key)
