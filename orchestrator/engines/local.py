"""Threads in one process: sessions wait on I/O, so one process carries many."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from orchestrator.engines.base import Gate, Job

_LOOK_S = 0.2
"""How often gates, stops and signals are looked at while nothing ends."""

_RECHECK_S = 1.0
"""How long a job that was not its turn rests."""


class LocalEngine:
    """A thread a running job. The lane with the fewest running jobs starts the next one."""

    name = "local"

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def run(self, jobs: Sequence[Job], *, stopping: Callable[[], bool]) -> list[Exception]:
        """Run all jobs; see `Engine.run`. Call it from the main thread, so that signals arrive."""
        return _Run(self._gate, jobs, stopping).until_done()


class _Lane:
    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: deque[tuple[Job, float]] = deque()  # and when it may be tried
        self.running = 0

    def has_due(self) -> bool:
        """Jobs that rest stand behind those that never were tried, in the order of their times."""
        return bool(self.waiting) and self.waiting[0][1] <= time.monotonic()


class _Run:
    def __init__(self, gate: Gate, jobs: Sequence[Job], stopping: Callable[[], bool]) -> None:
        self._gate, self._stopping = gate, stopping
        self._lanes: dict[str, _Lane] = {}
        for job in jobs:
            lane = self._lanes.setdefault(job.lane, _Lane(job.lane))
            lane.waiting.append((job, 0.0))
        self._ended = threading.Condition()
        self._raised: list[Exception] = []

    def until_done(self) -> list[Exception]:
        while True:
            with self._ended:
                started = [] if self._stopping() else list(self._starters())
            for thread in started:
                thread.start()
            with self._ended:
                if not self._busy():
                    return self._raised
                if not started:
                    self._ended.wait(_LOOK_S)

    def _busy(self) -> bool:
        if any(lane.running for lane in self._lanes.values()):
            return True
        return not self._stopping() and any(lane.waiting for lane in self._lanes.values())

    def _starters(self) -> Iterator[threading.Thread]:
        """Threads of all jobs that may start now, the emptiest lane first."""
        shut: set[str] = set()
        while True:
            open_lanes = [x for x in self._lanes.values() if x.name not in shut and x.has_due()]
            if not open_lanes:
                return
            lane = min(open_lanes, key=lambda one: one.running)
            if not self._gate.enter(lane.name):
                shut.add(lane.name)
                continue
            job, _ = lane.waiting.popleft()
            lane.running += 1
            yield threading.Thread(target=self._work, args=(lane, job), name=job.name)

    def _work(self, lane: _Lane, job: Job) -> None:
        done = True
        try:
            done = job.run()
        except Exception as error:  # noqa: BLE001 - reported to the caller, none is lost
            error.add_note(f"in {job.name}")
            self._raised.append(error)
        finally:
            with self._ended:
                self._gate.leave(lane.name)
                lane.running -= 1
                if not done:
                    lane.waiting.append((job, time.monotonic() + _RECHECK_S))
                self._ended.notify()
