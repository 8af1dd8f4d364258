"""Isolated regrades of archived attempts: what is missing, measured under the host's lock."""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from graders.base import Grader, GradeRequest
from graders.pipeline import RefereeGrader
from orchestrator.errors import UserError
from orchestrator.submission import write_folder
from sandboxes.staging import public_files
from tasks.errors import TaskError
from tasks.loader import load_task
from tasks.spec import Task
from transcripts.records import Grade
from transcripts.store import Archive, AttemptFolder
from transcripts.words import End, GradeResult

GRADED_ENDS = frozenset({End.SUBMITTED, End.LIMIT})
"""Ends after which there may be something to grade."""


@dataclass(frozen=True)
class GradingOptions:
    """How to grade."""

    tier: Literal["quick", "full"] = "full"
    isolation: str = "auto"
    device: str = "cpu"
    again: bool = False  # also what has a valid grade already
    correctness_only: bool = False
    seed: str | None = None  # of an earlier grade's plan, to replay it


def gradable(folder: AttemptFolder) -> bool:
    """True for a sealed attempt whose end allows a hand-in."""
    outcome = folder.record.outcome
    return folder.is_sealed and outcome is not None and outcome.end in GRADED_ENDS


def valid_grades(folder: AttemptFolder, task: Task) -> list[Grade]:
    """Isolated, not void, of this very attempt and task, within the scoring version."""
    return [
        grade
        for grade in folder.grades()
        if grade.mode == "isolated"
        and grade.result is not GradeResult.VOID
        and grade.attempt_seal == folder.seal_digest
        and grade.task_digest == task.digest
        and grade.scoring_version == task.scoring_version
    ]


def ungraded(
    folders: Iterable[AttemptFolder], options: GradingOptions, say: Callable[[str], None]
) -> list[AttemptFolder]:
    """Those that want a regrade. Attempts of a task that is not ours are said and left."""
    wanted = []
    for folder in folders:
        if not gradable(folder):
            continue
        reason = foreign_task(folder)
        if reason:
            say(f"left alone: {reason}")
        elif options.again or not valid_grades(folder, _task_of(folder)):
            wanted.append(folder)
    return wanted


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
    task = _task_of(folder)
    grade = grader.grade(
        GradeRequest(
            task=task,
            submission=folder.submission_dir,
            mode="isolated",
            tier=options.tier,
            isolation=options.isolation,
            device=options.device,
            attempt_id=folder.id,
            attempt_seal=folder.seal_digest,
            correctness_only=options.correctness_only,
            seed=options.seed,
        )
    )
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
        return RefereeGrader().grade(
            GradeRequest(
                task=task,
                submission=copy,
                mode="isolated",
                tier=options.tier,
                isolation=options.isolation,
                device=options.device,
                seed=options.seed,
                correctness_only=options.correctness_only,
            )
        )


def regrade_all(
    archive: Archive,
    folders: Iterable[AttemptFolder],
    grader: Grader,
    options: GradingOptions,
    say: Callable[[str], None],
    stopping: Callable[[], bool] = lambda: False,
) -> list[Grade]:
    """Grade what is missing, one after the other; each is archived before the next starts."""
    waiting = ungraded(folders, options, say)
    grades = []
    for number, folder in enumerate(waiting, 1):
        if stopping():
            say(f"stopped with {len(waiting) - number + 1} grades to go; run again to go on")
            break
        if not options.again and valid_grades(archive.find(folder.id), _task_of(folder)):
            continue  # somebody else graded it meanwhile
        grade = regrade(folder, grader, options)
        grades.append(grade)
        cell = folder.record.cell
        say(
            f"grade {number}/{len(waiting)}: {cell.entrant_name} x {cell.task}: {grade.result} "
            f"in {grade.seconds:.1f} s{': ' + grade.message if grade.message else ''}"
        )
    return grades


def _task_of(folder: AttemptFolder) -> Task:
    return load_task(folder.record.cell.task)
