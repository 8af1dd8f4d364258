"""Starting child processes from one long-lived thread.

``PR_SET_PDEATHSIG``, behind bubblewrap's ``--die-with-parent``, fires when the *thread* that forked
ends, not when its process does. Sessions run in pool threads that come and go, so all children are
started by one daemon thread that ends with the process.
"""

import os
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

_Job = tuple[Callable[[], subprocess.Popen[bytes]], "Future[subprocess.Popen[bytes]]"]
_lock = threading.Lock()
_jobs: queue.SimpleQueue[_Job] | None = None


def popen(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """``subprocess.Popen`` on the spawner's thread. Raises what Popen raises."""
    done: Future[subprocess.Popen[bytes]] = Future()
    _queue().put((lambda: subprocess.Popen(list(argv), **options), done))
    return done.result()


def _queue() -> "queue.SimpleQueue[_Job]":
    global _jobs  # noqa: PLW0603 - one thread a process is the point
    with _lock:
        if _jobs is None:
            _jobs = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(_jobs,), name="spawner", daemon=True).start()
        return _jobs


def _serve(jobs: "queue.SimpleQueue[_Job]") -> None:
    while True:
        start, done = jobs.get()
        try:
            done.set_result(start())
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            done.set_exception(error)


def _forget() -> None:
    """A forked child has no spawner thread; it starts its own."""
    global _jobs, _lock
    _jobs, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
