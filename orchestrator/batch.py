"""Many grades, one measured at a time, with a bounded look ahead at those that come next.

Two threads stage and prepare the next submissions while one is measured: on this host that is
static work alone (`graders.preparing` says why). Each grade is kept before the next starts, so a
batch that was stopped is gone on with by running it again.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from graders.base import Grader, GradeRequest
from orchestrator.errors import UserError
from orchestrator.gradeprogress import Reporter
from sandboxes.scratch import Scratch
from transcripts.records import Grade

LOOK_AHEAD = 2
"""Threads that prepare, and so submissions that are ready beyond the one that is measured."""


class NotReadable(UserError):
    """A submission that cannot be taken as it is; the batch goes on without it."""


class Stopped(Exception):
    """Stop was asked for while the job waited for its turn."""


@dataclass(frozen=True)
class Job:
    """One submission of a batch.

    ``stage`` puts it where only we can write (below the folder given) and says what to ask of the
    grader; it may raise NotReadable. ``turn`` is held while it is graded, and is False when that
    is no longer wanted; it may raise Stopped.
    """

    name: str  # for people
    stage: Callable[[Path], GradeRequest]
    keep: Callable[[Grade], None]
    turn: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(True)
    device: str = "cpu"
    languages: tuple[str, ...] = ()  # that its task accepts; any without


@dataclass
class _Ready:
    """A job whose submission waits for its turn."""

    scratch: Scratch
    request: GradeRequest
    prepared: Any

    def close(self) -> None:
        self.prepared.close()
        self.scratch.close()


def run(
    jobs: Sequence[Job], grader: Grader, report: Reporter, stop: threading.Event
) -> list[tuple[Job, Grade]]:
    """Grade them in their order until all are done or a stop is asked for."""
    done: list[tuple[Job, Grade]] = []
    report.begin(len(jobs))
    with report.shown(), _Ahead(jobs, grader) as ahead:
        for job, future in ahead:
            if stop.is_set():
                break
            report.start(job.name)
            try:
                grade = _measured(job, future, grader)
            except NotReadable as error:
                report.leave(job.name, str(error))
                continue
            except Stopped:
                break
            if grade is None:
                report.skip()
                continue
            done.append((job, grade))
            report.finish(job.name, grade)
    if report.left_over:
        report.say(f"stopped with {report.left_over} grades to go; run again to go on")
    return done


def _measured(job: Job, future: "Future[_Ready]", grader: Grader) -> Grade | None:
    ready = future.result()
    try:
        with job.turn() as wanted:
            if not wanted:
                return None
            grade = grader.grade(ready.request, ready.prepared)
            job.keep(grade)
            return grade
    finally:
        ready.close()


class _Ahead:
    """The jobs with their futures, `LOOK_AHEAD` of them begun; what nobody took is closed."""

    def __init__(self, jobs: Sequence[Job], grader: Grader) -> None:
        self._jobs, self._grader = iter(jobs), grader
        self._pool = ThreadPoolExecutor(LOOK_AHEAD, thread_name_prefix="prepare")
        self._begun: deque[tuple[Job, Future[_Ready]]] = deque()

    def __enter__(self) -> "_Ahead":
        return self

    def __iter__(self) -> Iterator[tuple[Job, "Future[_Ready]"]]:
        self._begin(1 + LOOK_AHEAD)
        while self._begun:
            yield self._begun.popleft()
            self._begin(1)

    def _begin(self, count: int) -> None:
        for job in islice(self._jobs, count):
            self._begun.append((job, self._pool.submit(_stage, job, self._grader)))

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for _, future in self._begun:
            if not future.cancelled() and future.exception() is None:
                future.result().close()


def _stage(job: Job, grader: Grader) -> _Ready:
    scratch = Scratch("submission")
    with ExitStack() as undo:
        undo.callback(scratch.close)
        request = job.stage(scratch.folder())
        ready = _Ready(scratch, request, grader.prepare(request))
        undo.pop_all()
        return ready


@contextmanager
def stopped_by_signals(say: Callable[[str], None]) -> Iterator[threading.Event]:
    """Ctrl-C or SIGTERM once: finish the current grade; twice: stop now, cleaning up; then die."""
    stop = threading.Event()
    times = 0

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal times
        times += 1
        stop.set()
        if times == 1:
            say(f"{signal.Signals(number).name}: finishing this grade; again to stop now")
        elif times == 2:
            raise KeyboardInterrupt
        else:
            os._exit(130)

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
