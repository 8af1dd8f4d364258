"""`audit`: what earned these numbers?"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.commands.options import ArchiveOption, JsonOption, archive_path, printer

if TYPE_CHECKING:
    from rich.console import Console

    from transcripts.records import Audit


def audit(
    ctx: typer.Context,
    attempt: Annotated[str | None, typer.Argument(help="An attempt id. [default: all]")] = None,
    again: Annotated[bool, typer.Option(help="Also what has a current audit.")] = False,
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Audit graded attempts: findings with quotes, and one verdict by written rules.

    What has a current audit is not audited again; name an attempt to see its audit.

    Example: orchestrator audit --archive ./archive
    """
    from orchestrator.auditing import audit_all
    from transcripts.store import Archive

    opened = Archive.open(archive_path(ctx, archive))
    folders = [opened.find(attempt)] if attempt else list(opened.attempts())
    audits = audit_all(folders, printer(ctx, as_json).note, again=again)
    if attempt and not audits:
        audits = folders[0].audits()[-1:]
    data: list[Any] = [one.model_dump(mode="json") for one in audits]
    printer(ctx, as_json).emit(data, lambda console: _show(audits, console))


def _show(audits: "list[Audit]", console: "Console") -> None:
    if not audits:
        console.print("Nothing to audit: no grade, or a current audit, everywhere.")
    for one in audits:
        console.print(f"{one.task} {one.attempt_id}: {one.verdict} by rule `{one.rule}`")
        console.print(f"  {one.summary}")
        console.print(f"  looked at: {', '.join(one.coverage)}")
        for gap in one.missing:
            console.print(f"  not looked at: {gap}")
        for finding in one.findings:
            lines = f":{finding.lines[0]}" if finding.lines else ""
            console.print(
                f"  [{finding.strength}] {finding.check} {finding.place}{lines}: {finding.why}",
            )
            console.print(f"      {finding.quote.strip()[:200]}")
