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
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

Result = TypeVar("Result")
Surroundings = Callable[[], AbstractContextManager[None]]
"""What is entered on the spawner's thread around a start, as a mount namespace."""

_Job = tuple[Callable[[], Any], "Future[Any]"]
_lock = threading.Lock()
_jobs: queue.SimpleQueue[_Job] | None = None


def popen(
    argv: Sequence[str], *, within: Surroundings = nullcontext, **options: Any
) -> subprocess.Popen[bytes]:
    """``subprocess.Popen`` on the spawner's thread. Raises what Popen raises."""
    with suppress(FileNotFoundError):  # the thread's own folder may be an older one of ours
        options.setdefault("cwd", os.getcwd())  # noqa: PTH109 - a plain path

    def start() -> subprocess.Popen[bytes]:
        with within():
            return subprocess.Popen(list(argv), **options)

    return call(start)


def call(job: Callable[[], Result]) -> Result:
    """Run on the spawner's thread, where mount namespaces may change. Raises what it raises."""
    done: Future[Result] = Future()
    _queue().put((job, done))
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
        job, done = jobs.get()
        try:
            done.set_result(job())
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            done.set_exception(error)


def _forget() -> None:
    """A forked child has no spawner thread; it starts its own."""
    global _jobs, _lock
    _jobs, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
