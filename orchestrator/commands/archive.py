"""`archive`: verify or repair an archive, or merge another machine's into it."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.options import ArchiveOption, JsonOption, archive_path, printer

app = typer.Typer(
    help="Verify or repair an archive, or merge another into it.", no_args_is_help=True
)


@app.command("verify")
def verify(ctx: typer.Context, archive: ArchiveOption = None, as_json: JsonOption = False) -> None:
    """Check chains, seals and records, and say what is wrong where.

    Example: orchestrator archive verify --archive ./archive
    """
    from transcripts.store import Archive
    from transcripts.verify import verify as verify_archive

    problems = verify_archive(Archive.open(archive_path(ctx, archive), read_only=True))
    printer(ctx, as_json).emit(
        [str(problem) for problem in problems],
        lambda console: console.print(
            "\n".join(str(problem) for problem in problems) or "everything verifies"
        ),
    )
    if problems:
        raise typer.Exit(4)


@app.command("repair")
def repair(ctx: typer.Context, archive: ArchiveOption = None, as_json: JsonOption = False) -> None:
    """Rebuild what follows from the rest (indexes); never guess.

    Example: orchestrator archive repair --archive ./archive
    """
    from transcripts.store import Archive
    from transcripts.verify import repair as repair_archive

    done = repair_archive(Archive.open(archive_path(ctx, archive)))
    printer(ctx, as_json).emit(
        done, lambda console: console.print("\n".join(done) or "nothing to repair")
    )


@app.command("merge")
def merge(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(help="The archive to take from; it is not changed.")],
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring the attempts, grades and audits of another archive into this one. Idempotent.

    Example: orchestrator archive merge ./from-the-rented-box --archive ./archive
    """
    from transcripts.merge import merge as merge_archives
    from transcripts.store import Archive

    taken_from = Archive.open(source, read_only=True)
    report = merge_archives(taken_from, Archive.open(archive_path(ctx, archive), create=True))
    printer(ctx, as_json).emit(report.as_dict(), lambda console: console.print(report.text()))
    if report.conflicts:
        raise typer.Exit(4)
