"""Threads in one process: sessions wait on I/O, so one process carries many."""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from orchestrator.engines.base import Job


class LocalEngine:
    """Each lane has its own ``workers`` threads, so that one slow provider blocks nobody else."""

    name = "local"

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def run(self, jobs: Sequence[Job], *, stopping: Callable[[], bool]) -> list[Exception]:
        """Run all jobs; see `Engine.run`. A job's thread lives until that job is done."""
        lanes: dict[str, deque[Job]] = defaultdict(deque)
        for job in jobs:
            lanes[job.lane].append(job)
        raised: list[Exception] = []

        def work(queue: deque[Job]) -> None:
            while not stopping():
                try:
                    job = queue.popleft()
                except IndexError:
                    return
                try:
                    job.run()
                except Exception as error:  # noqa: BLE001 - reported to the caller, none is lost
                    error.add_note(f"in {job.name}")
                    raised.append(error)

        threads = [
            threading.Thread(target=work, args=(queue,), name=f"{lane}-{number}")
            for lane, queue in lanes.items()
            for number in range(min(self._workers, len(queue)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            _join(thread)
        return raised


def _join(thread: threading.Thread) -> None:
    """Wait in short turns, so that signals reach the main thread."""
    while thread.is_alive():
        thread.join(timeout=0.2)
