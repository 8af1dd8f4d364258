"""`doctor`: what this machine can do and what is missing."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from orchestrator.commands.options import ArchiveOption, JsonOption, archive_path, printer

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.doctor import Finding


def doctor(ctx: typer.Context, archive: ArchiveOption = None, as_json: JsonOption = False) -> None:
    """Say what this machine can do, what is missing, and the command that fixes it.

    Example: orchestrator doctor
    """
    from orchestrator.doctor import examine

    findings = examine(archive_path(ctx, archive))
    data = [asdict(finding) for finding in findings]
    printer(ctx, as_json).emit(data, lambda console: _show(findings, console))
    if any(finding.needed and not finding.ok for finding in findings):
        raise typer.Exit(3)


def _show(findings: "list[Finding]", console: "Console") -> None:
    for finding in findings:
        word = "ok     " if finding.ok else ("MISSING" if finding.needed else "absent ")
        console.print(f"{word}  {finding.topic}: {finding.detail}")
        if finding.fix:
            console.print(f"         fix: {finding.fix}")
