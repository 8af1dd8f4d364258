"""What `grade` was pointed at, and how each kind is graded: one batch, one outcome.

(a) a submission's folder or file, (b) an attempt of an archive, (c) a whole archive, (d) a folder
of foreign submissions, whose grades go to a file or, as imported attempts, into an archive.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graders.base import Grader, GradeRequest
from orchestrator.batch import Job, NotReadable, run
from orchestrator.devices import NoSuchGpu, Unfit
from orchestrator.errors import UserError
from orchestrator.foreign import Foreign, Layout
from orchestrator.gradefile import GradeFile
from orchestrator.gradeprogress import Reporter
from orchestrator.grading import (
    GradingOptions,
    attempt_job,
    gradable,
    grade_request,
    is_grade_of,
    ungraded,
)
from orchestrator.handin import HandIn, read_hand_in
from orchestrator.heartbeat import Heart
from orchestrator.importing import FilesRequest, import_files
from orchestrator.qualifying import qualified
from orchestrator.submission import write_folder
from sandboxes.names import printable
from tasks.errors import TaskError
from tasks.loader import find_task, load_task
from tasks.spec import Task
from transcripts.records import Grade
from transcripts.store import Archive, AttemptFolder
from transcripts.words import GradeResult


@dataclass
class Outcome:
    """What came of it. ``left`` are submissions that could not be taken, with the reason."""

    graded: list[tuple[str, Grade]] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    known: int = 0  # that an earlier run has graded
    stopped: bool = False
    is_batch: bool = True
    qualification: list[dict[str, Any]] = field(default_factory=list)

    @property
    def void(self) -> list[str]:
        """Names of what has to be graded again."""
        return [name for name, grade in self.graded if grade.result is GradeResult.VOID]

    @property
    def exit_code(self) -> int:
        """130 stopped, 3 something is void, 1 something to notice, else 0."""
        if self.stopped:
            return 130
        if self.void:
            return 3
        failed = any(grade.result is not GradeResult.PASS for _, grade in self.graded)
        return int(bool(self.left) or (failed and not self.is_batch))


class Grading:
    """Grades with one grader, one set of options and one reporter."""

    def __init__(
        self,
        grader: Grader,
        options: GradingOptions,
        report: Reporter,
        stop: threading.Event,
        *,
        qualify: bool = False,
    ) -> None:
        """``qualify`` asks before a batch whether this machine measures as it did."""
        self._grader, self._options, self._report, self._stop = grader, options, report, stop
        self._qualify = qualify
        self._told: set[str] = set()

    # --- (a) one submission -----------------------------------------------------------------------

    def one(self, path: Path, task_name: str) -> Outcome:
        """Grade a folder or a file that is in no archive. Raises UserError.

        ``task_name`` may be the path of a task's folder.
        """
        task = find_task(task_name)
        files = _read(path)
        device = self._device(task)
        kept: list[Grade] = []

        def stage(scratch: Path) -> GradeRequest:
            copy = write_folder(files.files, scratch / "files")
            shown = printable(str(path))
            return replace(grade_request(task, copy, device, self._options), shown_as=shown)

        job = Job(printable(str(path)), stage, kept.append)
        return self._outcome(run([job], self._grader, self._report, self._stop), is_batch=False)

    # --- (b), (c) what is archived ----------------------------------------------------------------

    def archived(self, archive: Archive, wanted: str = "") -> Outcome:
        """Grade what an archive, or one attempt of it, has no valid grade of."""
        if not self._options.is_replay:
            archive.check_writable()
        folders = [_attempt(archive, wanted)] if wanted else list(archive.attempts())
        return self._regrade(archive, folders, is_batch=not wanted)

    # --- (d) foreign submissions ------------------------------------------------------------------

    def into_file(self, layout: Layout, out: GradeFile) -> Outcome:
        """Grade them into a file; what it holds already is left."""
        if out.broken:
            lines = ", ".join(map(str, out.broken[:5]))
            self._report.say(f"{out.path}: line {lines} could not be read and is ignored")
        jobs, left, known = [], _unnamed(layout), 0
        for one in layout.found:
            try:
                job = self._foreign_job(one, out)
            except (NotReadable, Unfit, NoSuchGpu) as error:
                left.append((one.shown, str(error)))
                self._report.say(f"left alone: {one.shown}: {error}")
                continue
            if job is None:
                known += 1
            else:
                jobs.append(job)
        if known:
            self._report.say(f"{known} of {len(layout.found)} are in {out.path} already")
        asked = self._qualified(jobs)
        for found in asked:
            out.write({"qualification": found})
        done = run(jobs, self._grader, self._report, self._stop)
        self._report.say(f"grades are in {out.path}")
        return replace(self._outcome(done, left, known), qualification=asked)

    def into_archive(self, layout: Layout, archive: Archive, model: str, deck: str = "") -> Outcome:
        """Import them as attempts of ``model``, where the layout names none, and grade those."""
        left = _unnamed(layout)
        folders: dict[str, AttemptFolder] = {}
        for one in layout.found:
            try:
                hand_in = read_hand_in(one.path)
            except NotReadable as error:
                left.append((one.shown, str(error)))
                self._report.say(f"left alone: {one.shown}: {error}")
                continue
            request = FilesRequest(
                name=one.shown,
                files=hand_in.files,
                digest=hand_in.digest,
                task=one.task,
                model=one.model or model,
                deck=deck,
                left_out=hand_in.left_out,
            )
            done = import_files(archive, request)
            folders[done.folder.id] = done.folder
            verb = "imported" if done.is_new else "known"
            self._report.say(f"{verb}: {one.shown} is attempt {done.folder.id}")
        outcome = self._regrade(archive, list(folders.values()), left=left)
        self._report.say(f"grades are in {archive.path}; next: audit, then board")
        return outcome

    def _foreign_job(self, one: Foreign, out: GradeFile) -> Job | None:
        """None where the file has its grade. Raises NotReadable, Unfit, NoSuchGpu."""
        task = load_task(one.task)
        device = self._device(task)
        digest = read_hand_in(one.path).digest
        known = any(
            grade.submission_digest == digest and is_grade_of(task, grade, device, self._options)
            for grade in out.grades
        )
        if known and not self._options.wants_again:
            return None

        def stage(scratch: Path) -> GradeRequest:
            hand_in = read_hand_in(one.path)
            copy = write_folder(hand_in.files, scratch / "files")
            shown = printable(str(one.path))
            return replace(grade_request(task, copy, device, self._options), shown_as=shown)

        def keep(grade: Grade) -> None:
            if not self._options.is_replay:
                out.add(one, grade)

        return Job(one.shown, stage, keep, device=device, languages=task.languages)

    # --- all of them ------------------------------------------------------------------------------

    def _device(self, task: Task) -> str:
        device, note = self._options.device_for(task)
        if note and task.name not in self._told:
            self._told.add(task.name)
            self._report.say(note)
        return device

    def _qualified(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        isolation = self._options.isolation
        return qualified(jobs, isolation, self._report.say) if self._qualify else []

    def _regrade(
        self,
        archive: Archive,
        folders: Sequence[AttemptFolder],
        left: Iterable[tuple[str, str]] = (),
        *,
        is_batch: bool = True,
    ) -> Outcome:
        for name in sorted({folder.record.cell.task for folder in folders}):
            try:
                self._device(load_task(name))
            except (Unfit, NoSuchGpu, TaskError):
                continue  # said for each attempt
        options, report, stop = self._options, self._report, self._stop
        waiting = ungraded(folders, options, report.say)
        with Heart() as heart:
            jobs = [attempt_job(archive, folder, options, heart, stop) for folder in waiting]
            asked = self._qualified(jobs) if is_batch else []
            done = run(jobs, self._grader, report, stop)
        return replace(self._outcome(done, left, is_batch=is_batch), qualification=asked)

    def _outcome(
        self,
        done: Sequence[tuple[Job, Grade]],
        left: Iterable[tuple[str, str]] = (),
        known: int = 0,
        *,
        is_batch: bool = True,
    ) -> Outcome:
        everything = [*left, *self._report.left]
        graded = [(_name(job, grade), grade) for job, grade in done]
        stopped = self._stop.is_set() and self._report.left_over > 0
        return Outcome(graded, everything, known, stopped, is_batch)


def _unnamed(layout: Layout) -> list[tuple[str, str]]:
    return [(one.shown, one.why) for one in layout.unnamed]


def _read(path: Path) -> HandIn:
    try:
        return read_hand_in(path.resolve() if path.is_symlink() else path)
    except NotReadable as error:
        raise UserError(f"{printable(str(path))}: {error}") from error


def _attempt(archive: Archive, wanted: str) -> AttemptFolder:
    folder = archive.find(wanted)
    outcome = folder.record.outcome
    if not folder.is_sealed:
        raise UserError(f"attempt {folder.id} is not finished: `sweep` again goes on with it")
    if not gradable(folder):
        end = outcome.end if outcome else "unknown"
        raise UserError(f"attempt {folder.id} ended with `{end}`: there is nothing to grade")
    return folder


def _name(job: Job, grade: Grade) -> str:
    return f"{job.name} ({grade.attempt_id})" if grade.attempt_id else job.name
