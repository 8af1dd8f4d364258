"""The desk of a session: what its commands `check`, `bench` and `submit` are answered.

The submission is looked at from outside, so the sandbox needs none of our code, and a run takes the
GPU's exclusive turn here, around the work.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graders.base import PublicReport
from orchestrator.turns.jobs import Progress, Runs
from orchestrator.turns.turns import Ticket

LONGEST_WAIT_S = 5.0
"""Of one question. A command asks again; a longer wait would hold a connection for nothing."""

DEFAULT_WAIT_S = 0.5
_LONGEST_NAME = 64
VERBS = ("check", "bench", "submit", "status")
_HTTP_OK, _NOT_FOUND, _NOT_READY = 200, 404, 409


class SessionDesk:
    """Answers questions of one session; thread-safe. Every answer is a JSON object."""

    def __init__(
        self,
        session: str,
        *,
        check: Callable[[], PublicReport],
        bench: Callable[[Callable[[Ticket], None]], PublicReport],
        digest: Callable[[], str],
        has_submission: Callable[[], bool],
        on_report: Callable[[str, PublicReport], None],
        on_submit: Callable[[], None],
        submission_file: str,
    ) -> None:
        """``digest`` is of the submission as it is now; ``on_report`` is told of each run once.

        ``bench`` says by which ticket it waits for its turn, where it needs one.
        """
        self._check, self._bench = check, bench
        self._digest, self._has_submission = digest, has_submission
        self._on_report, self._on_submit = on_report, on_submit
        self._file = submission_file
        self._runs = Runs(session)

    def ask(self, verb: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of an answer, within `LONGEST_WAIT_S`. Raises what a run raised."""
        if verb in ("check", "bench"):
            return _answer(_HTTP_OK, _told(verb, self._run(verb, _Question.of(body))))
        if verb == "submit":
            return self._submit()
        if verb == "status":
            return _answer(_HTTP_OK, {"state": "open", "verbs": list(VERBS)})
        return _answer(_NOT_FOUND, {"text": f"no `{verb}` here; there are {', '.join(VERBS)}"})

    def close(self, timeout_s: float) -> bool:
        """Wait for runs that go on; False when one still does."""
        return self._runs.join(timeout_s)

    def _run(self, verb: str, asked: "_Question") -> Progress:
        def work(wait_by: Callable[[Ticket], None]) -> PublicReport:
            report = self._check() if verb == "check" else self._bench(wait_by)
            self._on_report(verb, report)
            return report

        return self._runs.ask(verb, asked.asker, self._digest, work, asked.wait_s)

    def _submit(self) -> tuple[int, bytes]:
        if not self._has_submission():
            text = f"There is no {self._file} to hand in. Write it, then submit."
            return _answer(_NOT_READY, {"state": "done", "passed": False, "text": text})
        self._on_submit()
        return _answer(_HTTP_OK, {"state": "done", "passed": True, "text": "Handed in."})


@dataclass(frozen=True)
class _Question:
    """The body of a question; hostile ones get the defaults."""

    asker: str = ""
    wait_s: float = DEFAULT_WAIT_S

    @classmethod
    def of(cls, body: bytes) -> "_Question":
        try:
            said = json.loads(body)
            asker, wait_s = str(said["asker"])[:_LONGEST_NAME], float(said["wait_s"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return cls()
        return cls(asker, min(max(wait_s, 0.0), LONGEST_WAIT_S)) if math.isfinite(wait_s) else cls()


def _told(verb: str, progress: Progress) -> dict[str, Any]:
    if progress.report is not None:
        report = progress.report
        return {
            "state": "done",
            "passed": report.passed,
            "result": report.result,
            "text": report.text,
            "median_ms": report.median_ms,
        }
    text = (
        f"{verb}: busy, {progress.ahead} ahead"
        if progress.state == "waiting"
        else f"{verb}: running for {progress.seconds:.0f} s"
    )
    return {"state": progress.state, "ahead": progress.ahead, "text": text}


def _answer(status: int, told: dict[str, Any]) -> tuple[int, bytes]:
    return status, json.dumps(told).encode()
