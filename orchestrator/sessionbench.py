"""`check` and `bench` of a session: the referee on a copy of the submission as it is now."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from graders.base import Grader, GradeRequest, PublicReport
from orchestrator.submission import digests, handed_in, write_folder
from orchestrator.turns.turns import Ticket, Turns
from sandboxes.base import Sandbox
from sandboxes.scratch import Scratch
from transcripts.records import digest_of


@dataclass(frozen=True)
class BenchTurn:
    """How a session takes its turns on a shared GPU."""

    turns: Turns
    session: str
    check_stop: Callable[[], None]


class SessionBench:
    """See `orchestrator.agents.base.Bench`. On a GPU a bench has the device to itself."""

    def __init__(
        self,
        grader: Grader,
        request: GradeRequest,
        sandbox: Sandbox,
        staged: Mapping[str, bytes],
        turn: BenchTurn,
        on_bench: Callable[[PublicReport], None] = lambda _: None,
    ) -> None:
        """``request`` is what to ask of the grader, its submission aside."""
        self._on_bench = on_bench
        self._grader, self._request = grader, request
        self._sandbox, self._staged, self._turn = sandbox, staged, turn

    def check(self) -> PublicReport:
        """Correctness at the public shapes; sessions' checks run beside each other."""
        return self._with_copy(self._grader.check)

    def bench(self, wait_by: Callable[[Ticket], None] = lambda _: None) -> PublicReport:
        """Milliseconds at the public shapes; on a GPU ``wait_by`` is told the ticket of its turn.

        Raises what the session's stop raises while it waits.
        """
        report = self._bench(wait_by)
        self._on_bench(report)
        return report

    def _bench(self, wait_by: Callable[[Ticket], None]) -> PublicReport:
        device = self._request.device
        if device == "cpu":
            return self._with_copy(self._grader.bench)
        ticket = self._turn.turns.enter(device, f"session {self._turn.session} (bench)")
        wait_by(ticket)
        with ticket.turn(self._turn.check_stop) as turn:
            report = self._with_copy(self._grader.bench)
        return replace(report, device=device, waited_s=turn.waited_s, used_mib_before=turn.used_mib)

    def digest(self) -> str:
        """Of what would be handed in now."""
        files = handed_in(self._sandbox.snapshot(), self._staged)
        listed = digests({path: file.data for path, file in files.items()})
        return digest_of([entry.model_dump() for entry in listed])

    def _with_copy(self, run: Callable[[GradeRequest], PublicReport]) -> PublicReport:
        files = handed_in(self._sandbox.snapshot(), self._staged)
        with Scratch("submission") as scratch:
            folder = write_folder({p: f.data for p, f in files.items()}, scratch.folder())
            return run(replace(self._request, submission=folder))
