"""The one retry policy of model calls.

A failed try is repeated by class of failure: rate limits and overload for long (they pass), dropped
streams and malformed chunks a few times (each costs money), refusals of the request or the key
never. A provider's Retry-After is honoured, in seconds or as an HTTP date; else the wait doubles,
with jitter, up to a minute. A whole answer is never asked for again: clients return it. Each try is
made under a permit of the provider's account, which is not held while waiting for the next one.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Event

from tenacity import RetryCallState, Retrying, retry_if_exception

from orchestrator.models.accounts import Account
from orchestrator.models.base import ModelReply, RetryNotice
from orchestrator.models.errors import Interrupted, ModelError

TRIES: Mapping[str, int] = {
    "rate_limit": 30,
    "overloaded": 30,
    "server_error": 12,
    "unreachable": 12,
    "dropped_stream": 8,
    "malformed": 5,
}
"""Tries a call may fail by kind of failure; with the waits, a provider's outage of about half an
hour is ridden out. Kinds that are not listed are never retried."""

LONGEST_RETRY_AFTER_S = 3600.0
"""A provider that asks for a longer wait than this is asked again after this."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how patiently. Waits are in seconds."""

    tries: Mapping[str, int] = field(default_factory=lambda: dict(TRIES))
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    account: Account | None = None  # whose permits bound the calls; None: unbounded

    def ask(
        self,
        once: Callable[[], ModelReply],
        on_retry: Callable[[RetryNotice], None],
        stopping: Event | None = None,
    ) -> ModelReply:
        """Call ``once`` until it answers or the policy gives up with the last error.

        Raises Interrupted when ``stopping`` is set while waiting.
        """
        failures: Counter[str] = Counter()

        def notify(state: RetryCallState) -> None:
            error = _error(state)
            wait_s = state.next_action.sleep if state.next_action else 0.0
            on_retry(RetryNotice(state.attempt_number, error.kind, wait_s, str(error)))

        retrying = Retrying(
            retry=retry_if_exception(self._is_retryable),
            after=lambda state: failures.update((_error(state).kind,)),
            stop=lambda state: failures[_error(state).kind] >= self.tries[_error(state).kind],
            wait=lambda state: self.wait_s(_error(state), failures[_error(state).kind]),
            before_sleep=notify,
            sleep=lambda seconds: _sleep(seconds, stopping),
            reraise=True,
        )
        account = self.account
        return retrying(once if account is None else lambda: account.call(once, stopping))

    def _is_retryable(self, error: BaseException) -> bool:
        return isinstance(error, ModelError) and self.tries.get(error.kind, 0) > 0

    def wait_s(self, error: ModelError, failures: int) -> float:
        """Seconds before the next try after ``failures`` failures of this kind."""
        if error.retry_after_s is not None:
            asked = min(error.retry_after_s, LONGEST_RETRY_AFTER_S)
            # Sessions that were limited together must not come back together.
            return asked * random.uniform(1.0, 1.1)  # noqa: S311 - jitter
        ceiling = min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(failures - 1, 30))
        return random.uniform(ceiling / 2, ceiling)  # noqa: S311 - jitter


ONCE = RetryPolicy(tries={})
"""No retries: for `models check`, which reports the first failure."""


def _error(state: RetryCallState) -> ModelError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, ModelError)  # the policy retries nothing else
    return error


def _sleep(seconds: float, stopping: Event | None) -> None:
    if (stopping or Event()).wait(seconds):
        raise Interrupted("the session is stopping; the failed model call was not tried again")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response asks to wait: ``retry-after-ms``, seconds, or an HTTP date.

    A date is read against the response's own ``Date``, so that a wrong clock here does not matter.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    when = _date(value)
    if when is None:
        return None
    return max(0.0, (when - (_date(headers.get("date")) or datetime.now(UTC))).total_seconds())


def _date(text: str | None) -> datetime | None:
    try:
        when = parsedate_to_datetime(text or "")
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < float("inf") else None
