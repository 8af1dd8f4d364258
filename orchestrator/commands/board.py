"""`board`: the ranking of a deck, from the archive alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.commands.options import ArchiveOption, JsonOption, archive_path, printer

if TYPE_CHECKING:
    from rich.console import Console


def board(
    ctx: typer.Context,
    deck: Annotated[str, typer.Option(help="The deck of tasks.")] = "rounds",
    file: Annotated[
        Path | None, typer.Option(help="A board file (TOML) that pins what counts.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the board as Markdown.")] = None,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the board of a deck, one per hardware; what does not count is listed with its reason.

    Example: orchestrator board --deck rounds --archive ./archive --out board.md
    """
    from orchestrator.boards.board import build
    from orchestrator.boards.markdown import board_markdown, write
    from orchestrator.boards.render import render
    from transcripts.store import Archive

    opened = Archive.open(archive_path(ctx, archive), read_only=True)
    boards = build(opened, deck, file)
    printed = printer(ctx, as_json)
    if out is not None:
        write(out, board_markdown(boards))
        printed.note(f"wrote {out}")

    def show(console: "Console") -> None:
        for one in boards:
            render(one, console)

    printed.emit([one.model_dump(mode="json") for one in boards], show)
    for problem in opened.problems:
        printed.note(f"problem: {problem}")
