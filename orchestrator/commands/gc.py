"""`gc`: remove what dead orchestrators left behind."""

import typer

from orchestrator.commands.options import ArchiveOption, JsonOption, archive_path, printer


def gc(ctx: typer.Context, archive: ArchiveOption = None, as_json: JsonOption = False) -> None:
    """Remove sandboxes, processes and scratch of orchestrators that died.

    What belongs to a live one is never touched. An archive is cleared of unfinished files too.

    Example: orchestrator gc --archive ./archive
    """
    from sandboxes import scratch
    from sandboxes.registry import KINDS, provider
    from transcripts.owner import is_live
    from transcripts.store import Archive
    from transcripts.verify import sweep_scratch

    removed = [
        line
        for kind in KINDS
        if provider(kind).unavailable_reason() is None
        for line in provider(kind).reap(is_live)
    ]
    removed += scratch.reap()
    path = archive_path(ctx, archive)
    if archive is not None or path.exists():
        removed += sweep_scratch(Archive.open(path))
    printer(ctx, as_json).emit(
        removed, lambda console: console.print("\n".join(removed) or "nothing to remove")
    )
