"""Adaptive concurrency of an account: its rules with a clock of ours, and real 429 storms."""

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from model_servers import TOOLS
from narrow_server import NarrowServer
from orchestrator.models.accounts import Account, account_of
from orchestrator.models.base import Conversation, UserTurn
from orchestrator.models.connect import client
from orchestrator.models.errors import Interrupted, OutOfQuota, Overloaded, RateLimited
from orchestrator.models.retry import RetryPolicy
from orchestrator.models.roster import load_roster

HELLO = Conversation("", [UserTurn("hello")])


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class InFlight:
    """Calls that end when the test says how."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._threads: list[threading.Thread] = []
        self._ends: list[tuple[threading.Event, list[Exception]]] = []

    def begin(self, count: int) -> None:
        """``count`` calls in flight, one after the other."""
        for _ in range(count):
            before = self._account.load().in_flight
            end, errors = threading.Event(), []
            self._ends.append((end, errors))

            def once(end=end, errors=errors) -> str:
                end.wait()
                if errors:
                    raise errors[0]
                return "whole"

            def run(once: Callable[[], str] = once) -> None:
                with contextlib.suppress(RateLimited, Overloaded):
                    self._account.call(once)

            self._threads.append(threading.Thread(target=run))
            self._threads[-1].start()
            while self._account.load().in_flight == before:
                pass

    def end(self, error: Exception | None = None) -> None:
        """The oldest call ends, well or with an error."""
        event, errors = self._ends.pop(0)
        if error:
            errors.append(error)
        event.set()
        self._threads.pop(0).join()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def account(clock: Clock) -> Account:
    return Account("test", start=4, ceiling=64, clock=clock)


@pytest.fixture
def calls(account: Account) -> Iterator[InFlight]:
    one = InFlight(account)
    yield one
    while one._ends:
        one.end()


def test_an_answer_that_came_while_all_permits_were_used_adds_one(
    account: Account, calls: InFlight
) -> None:
    calls.begin(4)
    for _ in range(4):
        calls.end()
        calls.begin(1)
    assert account.load().permits == 5  # for the first answer; then four of five were in use


def test_unused_permits_grow_nothing(account: Account) -> None:
    for _ in range(50):
        account.call(lambda: "whole")
    assert account.load().permits == 4


def test_sessions_that_wait_on_tools_count_as_use(account: Account) -> None:
    assert [account.enter_session() for _ in range(5)] == [True] * 4 + [False]
    account.call(lambda: "whole")
    assert account.load().permits == 5
    assert account.enter_session()


@pytest.mark.parametrize("error", [RateLimited("429"), Overloaded("529")])
def test_a_refusal_halves_and_its_whole_burst_counts_once(
    account: Account, calls: InFlight, clock: Clock, error: Exception
) -> None:
    account.open_up(16)
    calls.begin(16)
    clock.now += 1
    for _ in range(8):
        calls.end(error)
    assert account.load().permits == 8
    assert account.load().refusals == 8
    clock.now += 1
    for _ in range(8):
        calls.end()
    calls.begin(8)  # begun after the cut
    clock.now += 1
    calls.end(error)
    assert account.load().permits == 4


def test_after_a_refusal_it_grows_by_one_a_round(account: Account, calls: InFlight) -> None:
    calls.begin(4)
    calls.end(RateLimited("429"))
    calls.end()
    calls.end()
    calls.end()
    assert account.load().permits == 2
    for _ in range(3):
        calls.begin(2)
        calls.end()
        calls.end()
    assert account.load().permits == 3


def test_an_account_never_falls_below_one_call(account: Account, clock: Clock) -> None:
    def refuse() -> None:
        raise RateLimited("429")

    for _ in range(5):
        clock.now += 1
        with pytest.raises(RateLimited):
            account.call(refuse)
    assert account.load().permits == 1
    assert account.call(lambda: "whole") == "whole"


def test_an_empty_account_is_no_busy_one(account: Account) -> None:
    def refuse() -> None:
        raise OutOfQuota("pay")

    with pytest.raises(OutOfQuota):
        account.call(refuse)
    assert account.load().permits == 4


def test_a_refusal_holds_back_the_other_calls_for_as_long_as_was_asked(
    account: Account, clock: Clock
) -> None:
    def refuse() -> None:
        raise RateLimited("429", retry_after_s=30)

    with pytest.raises(RateLimited):
        account.call(refuse)
    assert account.load().paused_s == 30
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(Interrupted):  # it would wait
        account.call(lambda: "whole", stopping)
    clock.now += 30
    assert account.call(lambda: "whole", stopping) == "whole"
    assert account.load().waiting == 0


def test_models_of_one_host_and_key_share_an_account() -> None:
    assert account_of("https://a.example/v1", "KEY") is account_of("https://a.example/x", "KEY")
    assert account_of("https://a.example/v1", "KEY") is not account_of("https://a.example", "B")
    assert account_of("https://a.example:8/v1", None) is not account_of("https://a.example", None)
    assert "secret" not in account_of("https://me:secret@a.example/v1", None).name


def test_a_429_storm_brings_concurrency_down_and_every_call_through() -> None:
    """48 sessions of an account that bears 3 calls, twice: the second time there is no storm."""
    server = NarrowServer(room=3, hold_s=0.03)
    account = Account("narrow", start=48)
    policy = RetryPolicy({"rate_limit": 1000}, account=account)
    entry = load_roster().resolve(f"{server.url}#m")
    answers: list[str] = []
    together = threading.Barrier(48)

    def session() -> None:
        model = client(entry, policy=policy)
        together.wait(60)
        answers.extend(model.reply(HELLO, TOOLS, lambda _: None).text for _ in range(2))
        model.close()

    def wave() -> int:
        server.most_at_once = 0
        threads = [threading.Thread(target=session) for _ in range(48)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return server.most_at_once

    wave()
    assert server.refused
    second = wave()
    server.close()
    assert answers == ["hello"] * 192
    assert account.load().permits <= 6
    assert second <= 12  # no herd comes back together
