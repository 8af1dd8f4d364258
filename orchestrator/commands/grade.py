"""`grade`: an archive, an attempt, or a folder with a submission."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.commands.options import ArchiveOption, JsonOption, archive_path, printer

if TYPE_CHECKING:
    from orchestrator.grading import GradingOptions
    from transcripts.records import Grade


def grade(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(help="An attempt id, or a folder with a submission. [default: the archive]"),
    ] = None,
    task: Annotated[str, typer.Option(help="The task, for a folder.")] = "",
    tier: Annotated[str, typer.Option(help="quick or full.")] = "full",
    sandbox: Annotated[
        str, typer.Option(help="Of the worker: bubblewrap, process (no isolation), or auto.")
    ] = "auto",
    device: Annotated[str, typer.Option(help="cpu, or a GPU's UUID.")] = "cpu",
    seed: Annotated[str, typer.Option(help="Replay the plan of cases of an earlier grade.")] = "",
    again: Annotated[bool, typer.Option(help="Also what has a valid grade.")] = False,
    correctness_only: Annotated[bool, typer.Option(help="Check, do not time.")] = False,
    explain: Annotated[bool, typer.Option(help="Show every check and measurement.")] = False,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Grade submissions with the referee. Grades are added to an attempt, never replaced.

    Example: orchestrator grade --archive ./archive

    Example: orchestrator grade ./my-solution --task layernorm-backward --explain
    """
    from orchestrator.commands.values import one_of
    from orchestrator.grading import GradingOptions, chosen_isolation

    note = printer(ctx, as_json).note
    options = GradingOptions(
        tier=one_of("--tier", tier, ("quick", "full")),
        isolation=chosen_isolation(
            one_of("--sandbox", sandbox, ("auto", "bubblewrap", "process")), note
        ),
        device=device,
        again=again,
        correctness_only=correctness_only,
        seed=seed or None,
    )
    folder = Path(target) if target else None
    if folder is not None and folder.exists():
        grades = [_grade_folder(folder, task, options)]
    else:
        grades = _grade_archive(archive_path(ctx, archive), target, options, note)
    from orchestrator.explain import summary

    printer(ctx, as_json).emit(
        [g.model_dump(mode="json") for g in grades],
        lambda console: console.print(summary(grades, explain)),
    )
    if any(g.result != "pass" for g in grades) and folder is not None and folder.exists():
        raise typer.Exit(1)


def _grade_folder(folder: Path, task: str, options: "GradingOptions") -> "Grade":
    from orchestrator.grading import grade_folder

    return grade_folder(folder, task, options)


def _grade_archive(
    path: Path, target: str | None, options: "GradingOptions", note: Callable[[str], None]
) -> "list[Grade]":
    from graders.pipeline import RefereeGrader
    from orchestrator.grading import regrade_all
    from transcripts.store import Archive

    opened = Archive.open(path)
    folders = [opened.find(target)] if target else list(opened.attempts())
    return regrade_all(opened, folders, RefereeGrader(), options, note)
