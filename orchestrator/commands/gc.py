"""`gc`: remove what dead orchestrators left behind."""

import typer

from orchestrator.commands.options import JsonOption, printer


def gc(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Remove sandboxes, processes and scratch of orchestrators that died; live ones never.

    Example: orchestrator gc
    """
    from sandboxes.registry import KINDS, provider
    from transcripts.owner import is_live

    removed = [
        line
        for kind in KINDS
        if provider(kind).unavailable_reason() is None
        for line in provider(kind).reap(is_live)
    ]
    printer(ctx, as_json).emit(
        removed, lambda console: console.print("\n".join(removed) or "nothing to remove")
    )
