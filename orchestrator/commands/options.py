"""Options that every verb shares; given before or after the verb, they mean the same."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.output import Printer

ArchiveOption = Annotated[
    Path | None,
    typer.Option(
        "--archive",
        help="The archive's folder. [default: $ORCHESTRATOR_ARCHIVE or ./archive]",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@dataclass(frozen=True)
class Globals:
    """What was given before the verb."""

    archive: Path | None = None
    as_json: bool = False


def archive_path(ctx: typer.Context, given: Path | None) -> Path:
    """The archive's folder: after the verb, before it, the environment, or ./archive."""
    before: Globals = ctx.find_object(Globals) or Globals()
    return given or before.archive or Path(os.environ.get("ORCHESTRATOR_ARCHIVE") or "archive")


def printer(ctx: typer.Context, as_json: bool) -> Printer:
    """The printer in the form asked for before or after the verb."""
    before: Globals = ctx.find_object(Globals) or Globals()
    return Printer(as_json or before.as_json)
