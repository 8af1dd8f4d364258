"""`status`: where every session of an archive stands."""

from typing import TYPE_CHECKING, Any

import typer

from orchestrator.commands.options import ArchiveOption, JsonOption, archive_path, printer

if TYPE_CHECKING:
    from rich.console import Console


def status(ctx: typer.Context, archive: ArchiveOption = None, as_json: JsonOption = False) -> None:
    """Show where every session, grade and audit of an archive stands.

    Example: orchestrator status --archive ./archive
    """
    from orchestrator.standings import standings
    from transcripts.store import Archive

    opened = Archive.open(archive_path(ctx, archive), read_only=True)
    rows = standings(opened)
    problems = [*opened.problems, *(p for row in rows for p in row["problems"])]
    out = printer(ctx, as_json)
    out.emit(rows, lambda console: _table(rows, problems, console))
    if as_json:
        for problem in problems:
            out.note(f"problem: {problem}")


def _table(rows: list[dict[str, Any]], problems: list[str], console: "Console") -> None:
    from rich.table import Table

    from orchestrator.output import cell

    table = Table(title=f"{len(rows)} attempts", title_justify="left")
    for name in ("attempt", "entrant", "task", "session", "steps", "grade", "audit"):
        table.add_column(name, overflow="fold")
    for row in rows:
        words = [row[name] for name in ("entrant", "task", "session", "steps", "grade", "audit")]
        table.add_row(row["attempt"][-12:], *(cell(str(word)) for word in words))
    console.print(table)
    for problem in problems:
        console.print(f"problem: {problem}")
