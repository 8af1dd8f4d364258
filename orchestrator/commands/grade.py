"""`grade`: a submission, an attempt, an archive, or a folder of foreign submissions."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.commands.options import ArchiveOption, Globals, JsonOption, archive_path, printer

if TYPE_CHECKING:
    from orchestrator.foreign import Layout
    from orchestrator.gradeflow import Grading, Outcome
    from orchestrator.gradeprogress import Reporter
    from orchestrator.grading import GradingOptions
    from orchestrator.output import Printer


def grade(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="A submission (folder or file), a folder of submissions, an attempt's id, or an "
            "archive's folder. [default: the archive]",
            show_default=False,
        ),
    ] = None,
    task: Annotated[
        str, typer.Option(help="The task of what no name says it of; or a task's folder.")
    ] = "",
    tier: Annotated[str, typer.Option(help="quick or full.")] = "full",
    gpu: Annotated[str, typer.Option(help="The UUID of the GPU, or how it begins.")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda (the only GPU), or a GPU's UUID.")] = "",
    sandbox: Annotated[
        str, typer.Option(help="Of the worker: bubblewrap, process (no isolation), or auto.")
    ] = "auto",
    again: Annotated[bool, typer.Option(help="Also what has a valid grade.")] = False,
    correctness_only: Annotated[
        bool, typer.Option(help="Check, do not time: earlier timings stay valid if it passes.")
    ] = False,
    seed: Annotated[
        str, typer.Option(help="Replay the cases of an earlier grade; it is not kept.")
    ] = "",
    only: Annotated[
        str, typer.Option(help="These cases alone, as GROUP or GROUP/SHAPE; it is not kept.")
    ] = "",
    explain: Annotated[bool, typer.Option(help="Show every check and measurement.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where grades of a folder of submissions go. [default: grades.jsonl in it]",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str, typer.Option("--as", help="Whose they are, where the folder does not say.")
    ] = "",
    no_qualify: Annotated[
        bool, typer.Option("--no-qualify", help="Do not test this machine before a batch.")
    ] = False,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Grade submissions with the referee. Grades are added, never replaced.

    Running it again goes on with what has no valid grade. Ctrl-C finishes the current grade, a
    second one stops now. Codes: 0 done, 1 something failed or was left, 3 void: grade again.

    Example: orchestrator grade --archive ./archive

    Example: orchestrator grade ./my-solution --task layernorm-backward --explain

    Example: orchestrator grade ./my-task/submissions/oracle --task ./my-task

    Example: orchestrator grade ./submissions --out grades.jsonl --tier quick
    """
    from orchestrator.commands.values import one_of
    from orchestrator.devices import asked_for
    from orchestrator.grading import GradingOptions, chosen_isolation

    say = printer(ctx, as_json)
    options = GradingOptions(
        tier=one_of("--tier", tier, ("quick", "full")),
        isolation=chosen_isolation(
            one_of("--sandbox", sandbox, ("auto", "bubblewrap", "process")), say.note
        ),
        device=asked_for(gpu, device),
        again=again,
        correctness_only=correctness_only,
        seed=seed or None,
        only=only,
    )
    before: Globals = ctx.find_object(Globals) or Globals()
    asked = _Asked(target, task, model, out, archive or before.archive, archive_path(ctx, archive))
    with _grading(options, say, qualify=not no_qualify) as (grading, report):
        outcome = asked.grade(grading, report)
    _show(outcome, say, explain)
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


class _Asked:
    """What is to be graded, and where grades go."""

    def __init__(
        self,
        target: str | None,
        task: str,
        model: str,
        out: Path | None,
        into: Path | None,
        archive: Path,
    ) -> None:
        self._target, self._task, self._model = target, task, model
        self._out, self._into, self._archive = out, into, archive

    def grade(self, grading: "Grading", report: "Reporter") -> "Outcome":
        """Find out which kind of thing it is, and grade it. Raises UserError."""
        from orchestrator.gradetarget import kind_of, mapped, open_archive

        if self._target is None:
            return grading.archived(open_archive(self._archive))
        path = Path(self._target)
        kind = kind_of(path, self._task)
        if kind == "archive":
            return grading.archived(open_archive(path))
        if kind == "several":
            return self._many(path, mapped(path, self._task, report.say), grading)
        if kind == "one":
            return grading.one(path, self._task or _task_of(path))
        opened = open_archive(self._archive, self._target)
        return grading.archived(opened, self._target)

    def _many(self, root: Path, layout: "Layout", grading: "Grading") -> "Outcome":
        from orchestrator.errors import UserError
        from orchestrator.gradefile import opened
        from sandboxes.names import printable
        from transcripts.store import Archive

        if self._into is not None:
            if self._out is not None:
                raise UserError("--out and --archive both say where grades go; give one")
            archive = Archive.open(self._into, create=True)
            model = self._model or printable(root.resolve().name)
            return grading.into_archive(layout, archive, model)
        out_path = self._out or root
        with opened(out_path / "grades.jsonl" if out_path.is_dir() else out_path) as out:
            return grading.into_file(layout, out)


@contextmanager
def _grading(
    options: "GradingOptions", say: "Printer", *, qualify: bool
) -> "Iterator[tuple[Grading, Reporter]]":
    from graders.pipeline import RefereeGrader
    from orchestrator.batch import stopped_by_signals
    from orchestrator.gradeflow import Grading

    report = _reporter(say)
    with stopped_by_signals(report.say) as stop:
        # a replay, and correctness alone, rest on no figure of this machine
        asked = qualify and not options.is_replay and not options.correctness_only
        yield Grading(RefereeGrader(), options, report, stop, qualify=asked), report


def _reporter(say: "Printer") -> "Reporter":
    from orchestrator.gradeprogress import Bar, Quiet, Reporter
    from orchestrator.output import console

    if say.as_json:
        return Quiet()
    return Bar() if console(stderr=True).is_terminal else Reporter(say.note)


def _task_of(path: Path) -> str:
    """The task that a file's name says. Raises UserError."""
    from orchestrator.errors import UserError
    from orchestrator.foreign import task_of_name
    from tasks.loader import task_names

    names = task_of_name(path.stem, task_names(), whole=False)
    if len(names) == 1:
        return names[0]
    raise UserError(f"which task is {path} for? Say --task NAME; see `orchestrator tasks list`.")


def _show(outcome: "Outcome", say: "Printer", explain: bool) -> None:
    from rich.console import Console

    from orchestrator.explain import overview, summary

    grades = [one for _, one in outcome.graded]

    def human(console: Console) -> None:
        whole = explain or not outcome.is_batch or not grades
        lines = [summary(grades, explain) if whole else overview(outcome.graded)]
        if not grades and (outcome.left or outcome.stopped):
            lines = ["Nothing was graded."]
        lines += [f"left alone: {name}: {why}" for name, why in outcome.left]
        if outcome.void:
            lines.append(f"void, run the same command again: {', '.join(outcome.void)}")
        console.print("\n".join(lines), soft_wrap=True)  # lines are to be copied

    say.emit(_as_data(outcome), human)


def _as_data(outcome: "Outcome") -> dict[str, Any]:
    return {
        "grades": [
            {"name": name, "grade": one.model_dump(mode="json")} for name, one in outcome.graded
        ],
        "known": outcome.known,
        "left": [{"name": name, "why": why} for name, why in outcome.left],
        "void": outcome.void,
        "stopped": outcome.stopped,
        "qualification": outcome.qualification,
    }
