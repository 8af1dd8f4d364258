"""The sweep: run what is unfinished, regrade it in isolation, audit it.

Running the same sweep again finishes only what is unfinished. Several orchestrators may work on
one archive: attempts are dealt one by one (`orchestrator.dealing`), and what another works on is
looked at again later, not repeated.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from graders.errors import GraderVoid
from graders.machine import fingerprint
from graders.qualification import qualify
from orchestrator.abandoning import LOST, abandon, is_left_over, let_go
from orchestrator.agents.base import Standing
from orchestrator.auditing import audit_all
from orchestrator.dealing import Dealer, is_finished
from orchestrator.engines.base import Engine, Job
from orchestrator.faults import outcome_of
from orchestrator.grading import GradingOptions, regrade_all, ungraded
from orchestrator.heartbeat import Heart, Pulse
from orchestrator.plan import PlannedCell
from orchestrator.progress import Progress, mean_ms
from orchestrator.session import Session, SessionParts
from orchestrator.spending import Purse, estimate
from transcripts.errors import ClaimHeld
from transcripts.events import BenchRun
from transcripts.records import Attempt, Outcome
from transcripts.store import Archive, AttemptFolder

__all__ = ["Sweep", "SweepResult", "is_finished"]


@dataclass
class SweepResult:
    """What happened in this run."""

    ended: list[Outcome] = field(default_factory=list)
    resumable: list[Outcome] = field(default_factory=list)
    defects: list[Exception] = field(default_factory=list)
    not_started: int = 0  # attempts that the cap of money left for another day


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
        max_cost_usd: float | None = None,
    ) -> None:
        self.archive = archive
        self._cells = cells
        self._attempts = attempts
        self._parts = parts
        self._engine = engine
        self._progress = progress
        self._plan_digest = plan_digest
        self._lock = threading.Lock()
        self._said: set[str] = set()
        self._fingerprints = {
            device: fingerprint(parts.provider.kind, device, parts.agent.versions).model_copy(
                update={"image": parts.image or None}
            )
            for device in {parts.devices.of(cell.task.name) for cell in cells}
        }
        self._dealer = Dealer(archive, attempts, parts.owner, progress.say)
        self.purse = Purse(max_cost_usd)
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

    def describe(self) -> list[str]:
        """The plan in a few lines: cells, what is done already, what the rest may cost."""
        missing = [(cell.key, self._missing(cell)) for cell in self._cells]
        wanted, left = len(self._cells) * self._attempts, sum(count for _, count in missing)
        folders = self._folders()
        self.purse.remember(folders)
        started = sum(not folder.is_sealed for folder in folders)
        goes_on = "to be gone on with" if self._parts.agent.resumable else "cut off"
        lines = [
            f"plan {self._plan_digest[:8]}: {len(self._cells)} cells, {wanted} attempts wanted, "
            f"{wanted - left} done{f', {started} {goes_on}' if started else ''}; "
            f"sandbox {self.sandbox}; archive {self.archive.path}"
        ]
        priced = [
            (cell.key, count)
            for cell, (_, count) in zip(self._cells, missing, strict=True)
            if not cell.model.is_scripted  # which cost nothing
        ]
        guess = estimate(priced, [folder for folder in folders if is_finished(folder)]).describe()
        if guess:
            lines.append(f"estimated cost of what is left: {guess}")
        return [*lines, *self._money_lines()]

    def run_sessions(self) -> SweepResult:
        """Bring every cell to its number of finished attempts."""
        for problem in self.archive.problems:
            self._progress.say(f"problem: {problem}")
        self.purse.remember(self._folders())
        missing = {cell.key.id: self._missing(cell) for cell in self._cells}
        self._progress.total = len(self._cells) * self._attempts
        self._progress.done = self._progress.total - sum(missing.values())
        with Heart() as heart, self._progress.shown():
            # First every cell's first attempt, then every cell's second one.
            jobs = [
                Job(
                    cell.entrant.digest,
                    cell.name,
                    lambda cell=cell: self._run_one(cell, heart),  # type: ignore[misc]
                )
                for turn in range(self._attempts)
                for cell in self._cells
                if turn < missing[cell.key.id]
            ]
            self.result.defects = self._engine.run(jobs, stopping=self._parts.stop.is_set)
        return self.result

    def grade_and_audit(self, options: GradingOptions) -> None:
        """End with an isolated regrade and an audit of every attempt of these cells."""
        for device in self._fingerprints:
            if not self.stopped:
                self._regrade(replace(options, device=device))
        if not self.stopped:
            audit_all(self._all_folders(), self._progress.say)

    def _regrade(self, options: GradingOptions) -> None:
        """On one device, where it measures as it should."""
        folders = self._all_folders(options.device)
        try:
            if options.device != "cpu" and ungraded(folders, options, lambda _: None):
                self._progress.say(str(qualify(options.device, options.isolation)))
        except GraderVoid as error:
            self._progress.say(f"nothing is graded on {options.device} now: {error}")
            return
        say, stop = self._progress.say, self._parts.stop
        regrade_all(self.archive, folders, self._parts.grader, options, say, stop)

    def _all_folders(self, device: str | None = None) -> list[AttemptFolder]:
        """Attempts of all cells, or of those that are graded on a device."""
        return [
            folder
            for cell in self._cells
            if device is None or self._parts.devices.of(cell.task.name) == device
            for folder in self.archive.cell_attempts(cell.key)
        ]

    def _folders(self) -> list[AttemptFolder]:
        """What sessions left; imported attempts cost this sweep nothing."""
        return [folder for folder in self._all_folders() if folder.record.origin == "session"]

    def _missing(self, cell: PlannedCell) -> int:
        return self._dealer.missing(cell.key)

    def _money_lines(self) -> list[str]:
        """What was spent, against the cap, and what cannot be counted."""
        cap, lines = self.purse.cap_usd, []
        models = {cell.entrant.name: cell.model for cell in self._cells}
        unpriced = [n for n, model in models.items() if not (model.is_scripted or model.prices)]
        if cap is not None:
            lines.append(f"spent so far ${self.purse.total_usd:.2f} of at most ${cap:.2f}")
        if unpriced:
            what = "--max-cost cannot count them" if cap is not None else "costs stay unknown"
            lines.append(
                f"WARNING: no price is known of {', '.join(unpriced)}: {what}; "
                "give `prices` in your roster file"
            )
        if self.purse.unknown:
            lines.append(f"{self.purse.unknown} attempts of unknown cost are not in the total")
        return lines

    # --- one attempt ---------------------------------------------------------------------------

    def _run_one(self, cell: PlannedCell, heart: Heart) -> bool:
        """Run an attempt of the cell; False when it is others' turn and may be ours later.

        Faults of the archive leave the cell for a later run.
        """
        try:
            return self._run_dealt(cell, heart)
        except Exception as error:
            outcome = outcome_of(error)
            if outcome is None:
                raise
            self._keep(cell, outcome)
            return True

    def _run_dealt(self, cell: PlannedCell, heart: Heart) -> bool:
        if self.purse.is_empty:
            self._leave_unstarted()
            return True
        try:
            dealt = self._dealer.deal(cell.key, lambda name: self._new_attempt(cell, name))
        except ClaimHeld as held:
            self._say_once(f"{cell.name}: {held}; looked at again later")
            return False
        if dealt is None:
            return True
        folder, claim = dealt
        with heart.keeping(claim) as pulse:
            if is_left_over(self._parts, folder):
                self._progress.say(f"{cell.name}: {folder.id}: {LOST.message}")
                abandon(self._parts, cell, folder, LOST)
                outcome = None
            else:
                outcome = self._run_session(cell, folder, pulse)
                if outcome.end.retryable:
                    self._dealer.give_up(folder)
                    let_go(self._parts, cell, folder, outcome)
        if outcome is None:
            return self._run_dealt(cell, heart)
        self._keep(cell, outcome)
        return True

    def _leave_unstarted(self) -> None:
        with self._lock:
            self.result.not_started += 1
        self._say_once(
            f"--max-cost is reached: ${self.purse.total_usd:.2f} spent of ${self.purse.cap_usd:.2f}"
            "; nothing new is started, running sessions go on to their own end"
        )

    def _say_once(self, text: str) -> None:
        with self._lock:
            if text in self._said:
                return
            self._said.add(text)
        self._progress.say(text)

    def _keep(self, cell: PlannedCell, outcome: Outcome) -> None:
        with self._lock:
            kept = self.result.resumable if outcome.end.retryable else self.result.ended
            kept.append(outcome)
        if outcome.message:
            self._progress.say(f"{cell.name}: {outcome.message}")

    def _run_session(self, cell: PlannedCell, folder: AttemptFolder, pulse: Pulse) -> Outcome:
        resumed, best_ms = _past(folder)
        self._progress.begin(folder.id, cell.entrant.name, cell.task.name, resumed=resumed)
        self._progress.bench(folder.id, best_ms)

        def on_progress(at: Standing) -> None:
            self.purse.note(folder.id, at.cost_usd)
            self._progress.step(folder.id, at)

        outcome = Session(
            self._parts,
            cell,
            folder,
            pulse,
            on_progress,
            lambda report: self._progress.bench(folder.id, mean_ms(report.median_ms)),
        ).run()
        word = f"{outcome.end}{f' ({outcome.reason})' if outcome.reason else ''}"
        self._progress.end(folder.id, word, finished=not outcome.end.retryable)
        return outcome

    def _new_attempt(self, cell: PlannedCell, attempt_id: str) -> Attempt:
        return Attempt(
            attempt_id=attempt_id,
            cell=cell.key,
            entrant=cell.entrant,
            plan_digest=self._plan_digest,
            fingerprint=self._fingerprints[self._parts.devices.of(cell.task.name)],
            started_at=datetime.now(UTC),
        )


def _past(folder: AttemptFolder) -> tuple[bool, float | None]:
    """Whether the session ran before, and the best `bench` it saw, in milliseconds."""
    resumed = False
    means = []
    for event in folder.events():
        resumed = True
        if isinstance(event, BenchRun):
            means.append(mean_ms(event.median_ms))
    return resumed, min((mean for mean in means if mean is not None), default=None)
