"""Runs of `check` and `bench` that outlive the command which asked for them.

A command-line agent kills its commands after two minutes and may ask from both ends of a pipe. So a
run belongs to the session, not to the command: whoever asks is told within a second where it
stands, and finds the result when he asks again, unless the submission has changed since.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from graders.base import PublicReport
from orchestrator.turns.turns import Ticket

MOST_ASKERS = 64
"""Who are remembered of one run; names come from a sandbox."""

State = Literal["waiting", "running", "done"]


@dataclass(frozen=True)
class Progress:
    """Where a run stands; ``report`` once it is done."""

    state: State
    ahead: int = 0  # who is served before
    seconds: float = 0.0  # since it was asked for
    report: PublicReport | None = None


@dataclass
class Run:
    """One run, in a thread of its own. ``work`` is given a place to leave its ticket."""

    digest: str  # of the submission that it was asked for
    work: Callable[[Callable[[Ticket], None]], PublicReport]
    askers: set[str] = field(default_factory=set)  # who asked while it went on
    told: bool = False  # somebody has its result
    ticket: Ticket | None = None
    report: PublicReport | None = None
    error: BaseException | None = None
    since: float = field(default_factory=time.monotonic)
    finished: threading.Event = field(default_factory=threading.Event)

    def begin(self, name: str) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self.report = self.work(self._wait_by)
        except BaseException as error:  # noqa: BLE001 - raised again in whoever asks
            self.error = error
        finally:
            self.finished.set()

    def _wait_by(self, ticket: Ticket) -> None:
        self.ticket = ticket

    def is_for(self, asker: str, digest: Callable[[], str]) -> bool:
        """False where ``asker`` wants a run of his own: he has come late, or it is outdated."""
        if not self.finished.is_set():
            return True
        if self.error is not None and self.told:
            return False
        return self.digest == digest() and (asker in self.askers or not self.told)

    def progress(self) -> Progress:
        """Where it stands. Raises what the work raised."""
        if self.finished.is_set():
            if self.error is not None:
                raise self.error
            return Progress("done", seconds=time.monotonic() - self.since, report=self.report)
        waits = self.ticket is not None and not self.ticket.has_turn
        ahead = self.ticket.ahead if self.ticket is not None and waits else 0
        return Progress("waiting" if waits else "running", ahead, time.monotonic() - self.since)


class Runs:
    """The runs of one session: one a verb at a time."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()

    def ask(
        self,
        verb: str,
        asker: str,
        digest: Callable[[], str],
        work: Callable[[Callable[[Ticket], None]], PublicReport],
        wait_s: float,
    ) -> Progress:
        """Join the verb's run, or start one, and look at it after at most ``wait_s``.

        A result is for all who asked while it was made, or, when none of them is left to hear it,
        for the next who asks. Whoever comes later gets a new run, as for a changed submission.
        """
        with self._lock:
            run = self._runs.get(verb)
            if run is None or not run.is_for(asker, digest):
                run = self._runs[verb] = Run(digest(), work)
                run.begin(f"{verb} {self._session}")
            if len(run.askers) < MOST_ASKERS:
                run.askers.add(asker)
        run.finished.wait(wait_s)
        run.told = run.finished.is_set()
        return run.progress()

    def join(self, timeout_s: float) -> bool:
        """Wait until no run goes on; False when one still does. For the end of a session."""
        deadline = time.monotonic() + timeout_s
        runs: Mapping[str, Run] = dict(self._runs)
        return all(
            run.finished.wait(max(0.0, deadline - time.monotonic())) for run in runs.values()
        )
