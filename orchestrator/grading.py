"""Isolated regrades of archived attempts: what is missing, measured under the host's lock."""

import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from graders.base import Grader, GradeRequest
from graders.pipeline import RefereeGrader
from orchestrator.errors import UserError
from orchestrator.heartbeat import Heart
from orchestrator.submission import write_folder
from sandboxes.registry import provider
from sandboxes.staging import public_files
from tasks.errors import TaskError
from tasks.loader import load_task
from tasks.spec import Task
from transcripts.checks import attempt_problems
from transcripts.claims import Claim, take
from transcripts.errors import ArchiveError, ClaimHeld
from transcripts.owner import this_process
from transcripts.records import CellKey, Grade
from transcripts.store import Archive, AttemptFolder
from transcripts.words import End, GradeResult

GRADED_ENDS = frozenset({End.SUBMITTED, End.LIMIT})
"""Ends after which there may be something to grade."""

_RECHECK_S = 1.0
"""How often a cell that another orchestrator holds is looked at."""


@dataclass(frozen=True)
class GradingOptions:
    """How to grade."""

    tier: Literal["quick", "full"] = "full"
    isolation: str = "bubblewrap"  # of the worker; see `chosen_isolation`
    device: str = "cpu"
    again: bool = False  # also what has a valid grade already
    correctness_only: bool = False
    seed: str | None = None  # of an earlier grade's plan, to replay it

    def satisfied_by(self, grade: Grade) -> bool:
        """True when a grade measured at least what these options ask for."""
        on_cpu = grade.device.kind == "cpu"
        untimed = grade.result is GradeResult.PASS and not grade.timings
        return (
            grade.mode == "isolated"
            and grade.result is not GradeResult.VOID
            and on_cpu == (self.device == "cpu")
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
    return any(
        grade.attempt_seal == folder.seal_digest
        and grade.task_digest == task.digest
        and grade.scoring_version == task.scoring_version
        and options.satisfied_by(grade)
        for grade in folder.grades()
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
            reason = foreign_task(folder)
            if reason:
                say(f"left alone: {reason}")
            elif (options.again or not is_graded(folder, options)) and is_whole(folder, say):
                wanted.append(folder)
        except ArchiveError as error:
            say(f"left alone: attempt {folder.id}: {error}")
    return wanted


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
    request = _request(_task_of(folder), folder.submission_dir, options)
    grade = grader.grade(replace(request, attempt_id=folder.id, attempt_seal=folder.seal_digest))
    folder.add_grade(grade)
    return grade


def grade_folder(folder: Path, task_name: str, options: GradingOptions) -> Grade:
    """Grade a folder with a submission (or one file) that is in no archive."""
    if not task_name:
        raise UserError(f"which task is {folder} for? Say --task NAME; see `orchestrator tasks`.")
    task = load_task(task_name)
    with tempfile.TemporaryDirectory(prefix="submission-") as scratch:
        files = {folder.name: folder.read_bytes()} if folder.is_file() else public_files(folder)
        copy = write_folder(files, Path(scratch) / "files")
        request = replace(_request(task, copy, options), shown_as=str(folder))
        return RefereeGrader().grade(request)


def _request(task: Task, submission: Path, options: GradingOptions) -> GradeRequest:
    return GradeRequest(
        task=task,
        submission=submission,
        mode="isolated",
        tier=options.tier,
        isolation=options.isolation,
        device=options.device,
        seed=options.seed,
        correctness_only=options.correctness_only,
    )


def regrade_all(
    archive: Archive,
    folders: Iterable[AttemptFolder],
    grader: Grader,
    options: GradingOptions,
    say: Callable[[str], None],
    stop: threading.Event | None = None,
) -> list[Grade]:
    """Grade what is missing, one after the other; each is archived before the next starts.

    A cell is claimed while it is graded, so several orchestrators never measure one attempt twice.
    """
    stop = stop or threading.Event()
    waiting = ungraded(folders, options, say)
    grades = []
    with Heart() as heart:
        for number, folder in enumerate(waiting, 1):
            claim = _claim(archive, folder.record.cell, stop)
            if claim is None:
                say(f"stopped with {len(waiting) - number + 1} grades to go; run again to go on")
                break
            with heart.keeping(claim):
                if not options.again and is_graded(folder, options):
                    continue  # somebody else graded it meanwhile
                grade = regrade(folder, grader, options)
            grades.append(grade)
            say(f"grade {number}/{len(waiting)}: {_line(folder, grade)}")
    return grades


def _claim(archive: Archive, cell: CellKey, stop: threading.Event) -> Claim | None:
    """Take the cell, waiting for whoever holds it; None once a stop was asked for."""
    pause = 0.0
    while not stop.wait(pause):
        try:
            return take(archive, cell, this_process())
        except ClaimHeld:
            pause = _RECHECK_S
    return None


def _line(folder: AttemptFolder, grade: Grade) -> str:
    cell = folder.record.cell
    message = f": {grade.message}" if grade.message else ""
    return f"{cell.entrant_name} x {cell.task}: {grade.result} in {grade.seconds:.1f} s{message}"


def _task_of(folder: AttemptFolder) -> Task:
    return load_task(folder.record.cell.task)
