"""Isolated regrades of archived attempts: what is missing, measured under the host's lock."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from graders.base import Grader, GradeRequest
from orchestrator.batch import Job, Stopped, run
from orchestrator.devices import NoSuchGpu, Unfit, canonical_hardware, device_of, hardware_key
from orchestrator.gradeprogress import Reporter
from orchestrator.heartbeat import Heart
from sandboxes.registry import provider
from tasks.errors import TaskError
from tasks.loader import load_task
from tasks.spec import Task
from transcripts.checks import attempt_problems
from transcripts.claims import Claim, take
from transcripts.errors import ArchiveError, ClaimHeld
from transcripts.owner import this_process
from transcripts.records import Grade
from transcripts.store import Archive, AttemptFolder
from transcripts.words import End, GradeResult

GRADED_ENDS = frozenset({End.SUBMITTED, End.LIMIT})
"""Ends after which there may be something to grade."""

_RECHECK_S = 1.0
"""How often an attempt that another orchestrator holds is looked at."""


@dataclass(frozen=True)
class GradingOptions:
    """How to grade."""

    tier: Literal["quick", "full"] = "full"
    isolation: str = "bubblewrap"  # of the worker; see `chosen_isolation`
    device: str = "cpu"  # or a GPU's UUID; empty: chosen for each task, see `devices.device_of`
    again: bool = False  # also what has a valid grade already
    correctness_only: bool = False
    seed: str | None = None  # of an earlier grade's plan, to replay it
    only: str = ""  # these cases alone

    @property
    def is_replay(self) -> bool:
        """True for a look at what an earlier grade saw: it is shown and never kept."""
        return bool(self.seed or self.only)

    @property
    def wants_again(self) -> bool:
        """True when a valid grade is no reason to leave a submission."""
        return self.again or self.is_replay

    def device_for(self, task: Task, deck: str = "") -> tuple[str, str]:
        """The device, and what to say of the choice. Raises Unfit, UserError, NoSuchGpu."""
        return device_of(task, self.device, canonical_hardware(task, deck))

    def satisfied_by(self, grade: Grade, device: str) -> bool:
        """True when a grade measured at least what these options ask for, on such a device.

        Any CPU stands for another, as for boards' canonical hardware "cpu"; GPUs do not.
        """
        on_cpu = grade.device.kind == "cpu"
        measured_on = "cpu" if on_cpu else grade.device.hardware
        untimed = grade.result is GradeResult.PASS and not grade.timings
        return (
            grade.mode == "isolated"
            and grade.result is not GradeResult.VOID
            and measured_on == hardware_key(device)
            and (grade.tier == "full" or self.tier == "quick")
            and (self.correctness_only or not untimed)
        )


def chosen_isolation(wanted: str, say: Callable[[str], None]) -> str:
    """How workers are isolated: bubblewrap, or `process` on request or where there is none."""
    if wanted != "auto":
        return wanted
    reason = provider("bubblewrap").unavailable_reason()
    if reason is None:
        return "bubblewrap"
    say(f"WARNING: submissions are graded WITHOUT ISOLATION, and their grades say so: {reason}")
    return "process"


def gradable(folder: AttemptFolder) -> bool:
    """True for a sealed attempt whose end allows a hand-in."""
    outcome = folder.record.outcome
    return folder.is_sealed and outcome is not None and outcome.end in GRADED_ENDS


def is_graded(folder: AttemptFolder, options: GradingOptions) -> bool:
    """True when this very attempt has a grade of its task, in its scoring version, as asked for."""
    task = _task_of(folder)
    device, _ = options.device_for(task, folder.record.cell.deck)
    return any(
        grade.attempt_seal == folder.seal_digest and is_grade_of(task, grade, device, options)
        for grade in folder.grades()
    )


def is_grade_of(task: Task, grade: Grade, device: str, options: GradingOptions) -> bool:
    """True for a grade of this version of the task that measured what is asked for."""
    return (
        grade.task == task.name
        and grade.task_digest == task.digest
        and grade.scoring_version == task.scoring_version
        and options.satisfied_by(grade, device)
    )


def ungraded(
    folders: Iterable[AttemptFolder], options: GradingOptions, say: Callable[[str], None]
) -> list[AttemptFolder]:
    """Those that want a regrade. Damaged ones and those of other tasks are said and left."""
    wanted = []
    for folder in folders:
        try:
            if not gradable(folder):
                continue
            reason = foreign_task(folder) or _unfit(folder, options)
            if reason:
                say(f"left alone: {reason}")
            elif (options.wants_again or not is_graded(folder, options)) and is_whole(folder, say):
                wanted.append(folder)
        except ArchiveError as error:
            say(f"left alone: attempt {folder.id}: {error}")
    return wanted


def _unfit(folder: AttemptFolder, options: GradingOptions) -> str:
    """Why an attempt cannot be graded on the device asked for; empty when it can."""
    try:
        options.device_for(_task_of(folder), folder.record.cell.deck)
    except (Unfit, NoSuchGpu) as error:
        return f"attempt {folder.id}: {error}"
    return ""


def is_whole(folder: AttemptFolder, say: Callable[[str], None]) -> bool:
    """True when what was sealed is still what is there; damage is said."""
    problems = attempt_problems(folder)
    if problems:
        say(f"left alone: attempt {folder.id} is damaged: {problems[0]}")
    return not problems


def foreign_task(folder: AttemptFolder) -> str | None:
    """Why this product cannot grade an attempt; None when its task is one of ours, unchanged."""
    cell = folder.record.cell
    try:
        task = load_task(cell.task)
    except TaskError as error:
        return f"attempt {folder.id}: {error}"
    if task.digest == cell.task_digest:
        return None
    return (
        f"attempt {folder.id} was made for another version of `{task.name}` "
        f"({cell.task_digest[:8]}, here {task.digest[:8]}); grade it with the product that made it"
    )


def regrade(folder: AttemptFolder, grader: Grader, options: GradingOptions) -> Grade:
    """Grade one attempt in isolation and add the grade to it. Nothing is overwritten."""
    grade = grader.grade(attempt_request(folder, options))
    folder.add_grade(grade)
    return grade


def attempt_request(folder: AttemptFolder, options: GradingOptions) -> GradeRequest:
    """What to ask of the grader for an attempt. Raises what `options.device_for` raises."""
    task = _task_of(folder)
    device, _ = options.device_for(task, folder.record.cell.deck)
    request = grade_request(task, folder.submission_dir, device, options)
    return replace(request, attempt_id=folder.id, attempt_seal=folder.seal_digest)


def grade_request(
    task: Task, submission: Path, device: str, options: GradingOptions
) -> GradeRequest:
    """What to ask of the grader for a folder that only we can write."""
    return GradeRequest(
        task=task,
        submission=submission,
        mode="isolated",
        tier=options.tier,
        isolation=options.isolation,
        device=device,
        seed=options.seed,
        correctness_only=options.correctness_only,
        only=options.only,
    )


def regrade_all(
    archive: Archive,
    folders: Iterable[AttemptFolder],
    grader: Grader,
    options: GradingOptions,
    report: Callable[[str], None] | Reporter,
    stop: threading.Event | None = None,
) -> list[Grade]:
    """Grade what is missing, one after the other; each is archived before the next starts.

    An attempt is claimed while it is graded, so several orchestrators never measure one twice.
    ``report`` is told each line, or is a `Reporter`.
    """
    reporter = report if isinstance(report, Reporter) else Reporter(report, eta=False)
    stop = stop or threading.Event()
    waiting = ungraded(folders, options, reporter.say)
    with Heart() as heart:
        jobs = [attempt_job(archive, folder, options, heart, stop) for folder in waiting]
        return [grade for _, grade in run(jobs, grader, reporter, stop)]


def attempt_job(
    archive: Archive,
    folder: AttemptFolder,
    options: GradingOptions,
    heart: Heart,
    stop: threading.Event,
) -> Job:
    """One attempt of a batch; it is claimed while it has its turn."""
    cell, task = folder.record.cell, _task_of(folder)

    @contextmanager
    def turn() -> Iterator[bool]:
        with heart.keeping(_claim(archive, folder, stop)):
            # somebody else may have graded it meanwhile
            yield options.wants_again or not is_graded(folder, options)

    def keep(grade: Grade) -> None:
        if not options.is_replay:
            folder.add_grade(grade)

    return Job(
        name=f"{cell.entrant_name} x {cell.task}",
        stage=lambda _: attempt_request(folder, options),
        keep=keep,
        turn=turn,
        device=options.device_for(task, cell.deck)[0],
        languages=task.languages,
    )


def _claim(archive: Archive, folder: AttemptFolder, stop: threading.Event) -> Claim:
    """Take the attempt, waiting for whoever holds it. Raises Stopped once a stop was asked for."""
    pause = 0.0
    while not stop.wait(pause):
        try:
            return take(archive, folder.record.cell, this_process(), folder.id)
        except ClaimHeld:
            pause = _RECHECK_S
    raise Stopped


def _task_of(folder: AttemptFolder) -> Task:
    return load_task(folder.record.cell.task)
