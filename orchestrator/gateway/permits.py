"""Permits of a provider's account, taken without holding up the gateway's loop."""

import asyncio
import threading

from orchestrator.models.accounts import Account
from orchestrator.models.errors import ModelError


class Permit:
    """One try of a call may go; `give_back` says how it went. Without an account it is free."""

    def __init__(self, account: Account | None, started: float = 0.0) -> None:
        self._account, self._started = account, started

    @classmethod
    async def take(cls, account: Account | None, closing: threading.Event) -> "Permit":
        """Wait in the account's line. Raises Interrupted once ``closing`` is set."""
        if account is None:
            return cls(None)
        entering = asyncio.ensure_future(asyncio.to_thread(account.enter, closing))
        try:
            return cls(account, await asyncio.shield(entering))
        except asyncio.CancelledError:
            entering.add_done_callback(lambda done: _unused(account, done))
            raise

    def give_back(self, error: ModelError | None = None) -> None:
        """The try ended, by ``error`` where it failed. Idempotent."""
        account, self._account = self._account, None
        if account is not None:
            account.leave(self._started, error)


def _unused(account: Account, done: "asyncio.Future[float]") -> None:
    """Nobody waits for this permit any more."""
    if not done.cancelled() and done.exception() is None:
        account.leave(done.result(), ModelError("the call was not made"))
