"""Which GPU a session works on: a bounded number of seats on each, the emptiest first."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

_LOOK_S = 0.5


class Seats:
    """The seats of one orchestrator process. Sessions wait for one in the order they came."""

    def __init__(self, gpus: Sequence[str], per_gpu: int) -> None:
        """``gpus`` are UUIDs. Raises ValueError for none, or for no seat on each."""
        if not gpus or per_gpu < 1:
            raise ValueError("seats need a GPU, and at least one on each")
        self._gpus, self._per_gpu = tuple(dict.fromkeys(gpus)), per_gpu
        self._taken: Counter[str] = Counter()
        self._queue: list[object] = []
        self._lock = threading.Condition()

    @contextmanager
    def seat(self, check_stop: Callable[[], None]) -> Iterator[str]:
        """Hold a seat; yields the GPU's UUID. Raises what ``check_stop`` raises while waiting."""
        uuid = self._wait(check_stop)
        try:
            yield uuid
        finally:
            with self._lock:
                self._taken[uuid] -= 1
                self._lock.notify_all()

    def _wait(self, check_stop: Callable[[], None]) -> str:
        me = object()
        with self._lock:
            self._queue.append(me)
            try:
                while True:
                    check_stop()
                    uuid = min(self._gpus, key=lambda gpu: self._taken[gpu])
                    if self._queue[0] is me and self._taken[uuid] < self._per_gpu:
                        self._taken[uuid] += 1
                        return uuid
                    self._lock.wait(_LOOK_S)
            finally:
                self._queue.remove(me)
                self._lock.notify_all()
