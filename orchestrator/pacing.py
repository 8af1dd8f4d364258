"""How many sessions run at once: as many as asked for, or as the providers' accounts bear."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence

from orchestrator.models.accounts import Account, account_of
from orchestrator.models.entry import ModelEntry

SESSIONS_PER_CORE = 16
MOST_SESSIONS = 256
"""An account's sessions under `auto`: their commands share this machine's cores."""


class FixedGate:
    """``workers`` sessions of each lane, whatever the account bears; its calls wait in line."""

    def __init__(self, workers: int, accounts: Mapping[str, Account]) -> None:
        self._workers = workers
        self._accounts = accounts
        self._running: Counter[str] = Counter()
        for account, lanes in Counter(accounts.values()).items():
            account.open_up(workers * lanes)

    def enter(self, lane: str) -> bool:
        """See `Gate.enter`."""
        if self._running[lane] >= self._workers:
            return False
        self._running[lane] += 1
        return self._accounts[lane].enter_session(always=True)

    def leave(self, lane: str) -> None:
        """See `Gate.leave`."""
        self._running[lane] -= 1
        self._accounts[lane].leave_session()


class AccountGate:
    """As many sessions of an account as it has permits: more while it is healthy."""

    def __init__(self, accounts: Mapping[str, Account]) -> None:
        self._accounts = accounts
        most = min(MOST_SESSIONS, SESSIONS_PER_CORE * (os.cpu_count() or 1))
        for account in set(accounts.values()):
            account.set_ceiling(most)

    def enter(self, lane: str) -> bool:
        """See `Gate.enter`."""
        return self._accounts[lane].enter_session()

    def leave(self, lane: str) -> None:
        """See `Gate.leave`."""
        self._accounts[lane].leave_session()


def accounts_of(entries: Sequence[ModelEntry]) -> tuple[Account, ...]:
    """The accounts that these models are asked through, each once."""
    return tuple(dict.fromkeys(account_of(entry.base_url, entry.key) for entry in entries))


def gate_for(
    models: Sequence[tuple[str, ModelEntry]], concurrency: int | None
) -> FixedGate | AccountGate:
    """The gate of a sweep over these (lane, model) pairs; ``concurrency`` None is `auto`."""
    accounts = {lane: account_of(entry.base_url, entry.key) for lane, entry in models}
    return AccountGate(accounts) if concurrency is None else FixedGate(concurrency, accounts)
