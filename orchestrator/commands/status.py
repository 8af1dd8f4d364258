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
    printer(ctx, as_json).emit(rows, lambda console: _table(rows, console))


def _table(rows: list[dict[str, Any]], console: "Console") -> None:
    from rich.table import Table

    table = Table(title=f"{len(rows)} attempts", title_justify="left")
    for name in ("attempt", "entrant", "task", "session", "steps", "grade", "audit"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(
            row["attempt"][-12:],
            row["entrant"],
            row["task"],
            row["session"],
            str(row["steps"]),
            row["grade"],
            row["audit"],
        )
    console.print(table)
    for problem in (p for row in rows for p in row["problems"]):
        console.print(f"problem: {problem}", markup=False)
