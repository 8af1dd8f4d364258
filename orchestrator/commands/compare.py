"""`compare`: models head to head, a published round, or two archives side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.commands.options import ArchiveOption, JsonOption, archive_path, printer

if TYPE_CHECKING:
    from rich.console import Console


def compare(
    ctx: typer.Context,
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Two or more entrants; NAME@DIGEST where several share a name."),
    ] = None,
    round_: Annotated[
        str, typer.Option("--round", help="A published round: its JSON file, or its name.")
    ] = "",
    with_: Annotated[
        Path | None, typer.Option("--with", help="A second archive, cell by cell.")
    ] = None,
    deck: Annotated[str, typer.Option(help="The deck of tasks.")] = "rounds",
    out: Annotated[
        Path | None, typer.Option(help="Also write it: Markdown, or JSON (name ends in .json).")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Print it although it is not comparable.")
    ] = False,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare models of an archive as a round, print a published round, or pair two archives.

    Example: orchestrator compare oracle naive --archive ./archive --out round.md
    """
    from orchestrator.boards import comparing
    from orchestrator.boards.markdown import write

    folder = archive_path(ctx, archive)
    wanted = comparing.Wanted(tuple(models or ()), round_, with_, deck, anyway)
    result = comparing.compare(folder, wanted)
    printed = printer(ctx, as_json)
    if out is not None:
        write(out, result.saved_json if out.suffix == ".json" else result.markdown)
        printed.note(f"wrote {out}")

    def show(console: "Console") -> None:
        comparing.show(result.markdown, console)

    printed.emit(result.data, show)
    if result.is_mismatch:
        raise typer.Exit(1)
