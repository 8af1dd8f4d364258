"""The sweep: run what is unfinished, regrade it in isolation, audit it.

Running the same sweep again finishes only what is unfinished. Several orchestrators may work on
one archive: cells are claimed one by one, and a cell held by another is waited for, not repeated.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from graders.machine import fingerprint
from orchestrator.auditing import audit_all
from orchestrator.engines.base import Engine, Job
from orchestrator.faults import outcome_of
from orchestrator.grading import GradingOptions, regrade_all
from orchestrator.heartbeat import Heart, Pulse
from orchestrator.plan import PlannedCell
from orchestrator.progress import Progress
from orchestrator.session import Session, SessionParts
from transcripts.checks import live_damage
from transcripts.claims import take
from transcripts.errors import ClaimHeld
from transcripts.keys import new_id
from transcripts.records import Attempt, Outcome
from transcripts.store import Archive, AttemptFolder

_RECHECK_S = 1.0
"""How often a cell that another orchestrator holds is looked at."""


@dataclass
class SweepResult:
    """What happened in this run."""

    ended: list[Outcome] = field(default_factory=list)
    resumable: list[Outcome] = field(default_factory=list)
    defects: list[Exception] = field(default_factory=list)


class Sweep:
    """Runs the cells of one plan on one archive."""

    def __init__(
        self,
        archive: Archive,
        cells: Sequence[PlannedCell],
        attempts: int,
        parts: SessionParts,
        engine: Engine,
        progress: Progress,
        plan_digest: str,
    ) -> None:
        self.archive = archive
        self._cells = cells
        self._attempts = attempts
        self._parts = parts
        self._engine = engine
        self._progress = progress
        self._plan_digest = plan_digest
        self._lock = threading.Lock()
        self._told: set[str] = set()  # damaged attempts that were said
        self.result = SweepResult()

    @property
    def sandbox(self) -> str:
        """The kind of sandbox that sessions run in."""
        return self._parts.provider.kind

    @property
    def isolation(self) -> str:
        """How the grader's workers are isolated."""
        return self._parts.isolation

    @property
    def stopped(self) -> bool:
        """True once a signal asked to stop."""
        return self._parts.stop.is_set()

    def stop(self) -> None:
        """Finish running steps, leave sessions resumable, and start nothing new."""
        self._parts.stop.set()

    def describe(self) -> str:
        """The plan in one line: how many cells, and what is done already."""
        missing = sum(self._missing(cell) for cell in self._cells)
        wanted = len(self._cells) * self._attempts
        return (
            f"plan {self._plan_digest[:8]}: {len(self._cells)} cells, {wanted} attempts wanted, "
            f"{wanted - missing} done; sandbox {self.sandbox}; archive {self.archive.path}"
        )

    def run_sessions(self) -> SweepResult:
        """Bring every cell to its number of finished attempts."""
        for problem in self.archive.problems:
            self._progress.say(f"problem: {problem}")
        unfinished = [cell for cell in self._cells if self._missing(cell)]
        self._progress.total = len(self._cells) * self._attempts
        self._progress.done = self._progress.total - sum(self._missing(c) for c in unfinished)
        with Heart() as heart, self._progress.shown():
            jobs = [
                Job(
                    cell.entrant.digest,
                    cell.name,
                    lambda cell=cell: self._run_cell(cell, heart),  # type: ignore[misc]
                )
                for cell in unfinished
            ]
            self.result.defects = self._engine.run(jobs, stopping=self._parts.stop.is_set)
        return self.result

    def grade_and_audit(self, options: GradingOptions) -> None:
        """End with an isolated regrade and an audit of every attempt of these cells."""
        if self.stopped:
            return
        regrade_all(
            self.archive,
            self._folders(),
            self._parts.grader,
            options,
            self._progress.say,
            self._parts.stop,
        )
        if not self.stopped:
            audit_all(self._folders(), self._progress.say)

    def _folders(self) -> list[AttemptFolder]:
        return [f for cell in self._cells for f in self.archive.cell_attempts(cell.key)]

    def _missing(self, cell: PlannedCell) -> int:
        finished = sum(is_finished(f) for f in self.archive.cell_attempts(cell.key))
        return max(0, self._attempts - finished)

    def _run_cell(self, cell: PlannedCell, heart: Heart) -> None:
        """Bring one cell to its number of attempts; faults of the archive leave it for later."""
        try:
            self._share_cell(cell, heart)
        except Exception as error:
            outcome = outcome_of(error)
            if outcome is None:
                raise
            self._keep(cell, outcome)

    def _share_cell(self, cell: PlannedCell, heart: Heart) -> None:
        """Wait while another orchestrator holds the cell."""
        said = False
        while self._missing(cell) and not self.stopped:
            try:
                claim = take(self.archive, cell.key, self._parts.owner)
            except ClaimHeld as held:
                if not said:
                    self._progress.say(f"{cell.name}: {held}; waiting")
                    said = True
                self._parts.stop.wait(_RECHECK_S)
                continue
            with heart.keeping(claim) as pulse:
                if not self._run_attempts(cell, pulse):
                    return

    def _run_attempts(self, cell: PlannedCell, pulse: Pulse) -> bool:
        """Run attempts under a held claim; False when the cell must be left for a later run."""
        while self._missing(cell):
            folder = self._open_attempt(cell) or self.archive.create(self._new_attempt(cell))
            outcome = self._run_session(cell, folder, pulse)
            self._keep(cell, outcome)
            if outcome.end.retryable:
                return False
        return True

    def _keep(self, cell: PlannedCell, outcome: Outcome) -> None:
        with self._lock:
            kept = self.result.resumable if outcome.end.retryable else self.result.ended
            kept.append(outcome)
        if outcome.message:
            self._progress.say(f"{cell.name}: {outcome.message}")

    def _run_session(self, cell: PlannedCell, folder: AttemptFolder, pulse: Pulse) -> Outcome:
        resumed = any(True for _ in folder.events())
        self._progress.begin(folder.id, cell.entrant.name, cell.task.name, resumed=resumed)
        session = Session(
            self._parts,
            cell,
            folder,
            pulse,
            lambda at: self._progress.step(folder.id, at),
        )
        outcome = session.run()
        word = f"{outcome.end}{f' ({outcome.reason})' if outcome.reason else ''}"
        self._progress.end(folder.id, word, finished=not outcome.end.retryable)
        return outcome

    def _open_attempt(self, cell: PlannedCell) -> AttemptFolder | None:
        """The oldest attempt of this cell that can be resumed; damaged ones are said and left."""
        for folder in self.archive.cell_attempts(cell.key):
            if folder.is_sealed or folder.record.origin != "session":
                continue
            damage = live_damage(folder)
            if not damage:
                return folder
            if folder.id not in self._told:
                self._told.add(folder.id)
                self._progress.say(f"{cell.name}: {folder.id} is damaged and left: {damage[0]}")
        return None

    def _new_attempt(self, cell: PlannedCell) -> Attempt:
        return Attempt(
            attempt_id=new_id(),
            cell=cell.key,
            entrant=cell.entrant,
            plan_digest=self._plan_digest,
            fingerprint=fingerprint(self._parts.provider.kind, "cpu"),
            started_at=datetime.now(UTC),
        )


def is_finished(folder: AttemptFolder) -> bool:
    """True for a sealed session whose end says something about the model."""
    record = folder.record
    return (
        folder.is_sealed
        and record.origin == "session"
        and record.outcome is not None
        and not record.outcome.end.retryable
    )
