"""The local engine: lanes, gates, jobs whose turn it is not, stops."""

import threading
from collections import Counter
from collections.abc import Callable

from orchestrator.engines.base import Job
from orchestrator.engines.local import LocalEngine
from orchestrator.models.accounts import Account
from orchestrator.pacing import AccountGate, FixedGate


def never() -> bool:
    return False


def fixed(workers: int, *lanes: str) -> LocalEngine:
    return LocalEngine(FixedGate(workers, {lane: Account(lane) for lane in lanes}))


class Seen:
    """Which jobs ran, and how many at once."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.most: Counter[str] = Counter()
        self._now: Counter[str] = Counter()
        self._lock = threading.Lock()

    def job(self, lane: str, name: str, body: Callable[[], bool] = lambda: True) -> Job:
        def run() -> bool:
            with self._lock:
                self.order.append(name)
                self._now[lane] += 1
                self.most[lane] = max(self.most[lane], self._now[lane])
            try:
                return body()
            finally:
                with self._lock:
                    self._now[lane] -= 1

        return Job(lane, name, run)


def test_a_stuck_lane_holds_back_no_other() -> None:
    seen, quick_done = Seen(), threading.Event()
    left = [20]

    def quick() -> bool:
        left[0] -= 1
        if not left[0]:
            quick_done.set()
        return True

    jobs = [seen.job("slow", f"slow {n}", quick_done.wait) for n in range(3)]
    jobs += [seen.job("quick", f"quick {n}", quick) for n in range(20)]
    assert fixed(1, "slow", "quick").run(jobs, stopping=never) == []
    assert sorted(seen.order) == sorted(job.name for job in jobs)
    assert seen.most == {"slow": 1, "quick": 1}


def test_lanes_of_one_account_share_its_sessions_fairly() -> None:
    """Two models of one account of four sessions: two each, though one of them came first."""
    account, seen, full = Account("both", start=4), Seen(), threading.Barrier(4)

    def hold() -> bool:
        full.wait(30)
        return True

    jobs = [seen.job("a", f"a{n}", hold) for n in range(4)]
    jobs += [seen.job("b", f"b{n}", hold) for n in range(4)]
    engine = LocalEngine(AccountGate({"a": account, "b": account}))
    assert engine.run(jobs, stopping=never) == []
    assert seen.most == {"a": 2, "b": 2}


def test_a_job_whose_turn_it_is_not_lets_the_others_go_first() -> None:
    seen, others = Seen(), threading.Event()

    def last() -> bool:
        others.set()
        return True

    jobs = [seen.job("a", "waits", others.is_set), seen.job("a", "other"), seen.job("a", "z", last)]
    assert fixed(1, "a").run(jobs, stopping=never) == []
    assert seen.order == ["waits", "other", "z", "waits"]


def test_what_a_job_raises_is_returned_with_its_name_and_stops_nothing() -> None:
    seen = Seen()
    jobs = [Job("a", "bad", lambda: 1 / 0 > 0), seen.job("a", "good")]
    (error,) = fixed(1, "a").run(jobs, stopping=never)
    assert isinstance(error, ZeroDivisionError)
    assert error.__notes__ == ["in bad"]
    assert seen.order == ["good"]


def test_a_stop_ends_what_runs_and_starts_nothing_new() -> None:
    seen, stop = Seen(), threading.Event()

    def stops() -> bool:
        stop.set()
        return True

    jobs = [seen.job("a", "first", stops), seen.job("a", "second")]
    assert fixed(1, "a").run(jobs, stopping=stop.is_set) == []
    assert seen.order == ["first"]


def test_sessions_grow_with_the_permits_of_their_account() -> None:
    account, seen = Account("one", start=2, ceiling=64), Seen()

    def session() -> bool:
        for _ in range(3):
            account.call(lambda: None)
        return True

    jobs = [seen.job("a", str(n), session) for n in range(40)]
    assert LocalEngine(AccountGate({"a": account})).run(jobs, stopping=never) == []
    assert len(seen.order) == 40
    assert account.load().permits > 2
