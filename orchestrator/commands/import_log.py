"""`import`: foreign session logs as attempts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.commands.options import ArchiveOption, JsonOption, archive_path, printer

if TYPE_CHECKING:
    from orchestrator.importing import Imported


def import_log(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(help="The session's log.")],
    task: Annotated[str, typer.Option(help="The task that was worked on.")],
    model: Annotated[
        str, typer.Option("--as", help="Whose attempt it is. [default: what the log says]")
    ] = "",
    effort: Annotated[str, typer.Option(help="The effort, where the log does not say.")] = "",
    deck: Annotated[str, typer.Option(help="The deck. [default: the one that has the task]")] = "",
    dialect: Annotated[str, typer.Option(help="Of the log; found by content if `auto`.")] = "auto",
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import a session log: nothing of it is lost, and its files are rebuilt byte for byte.

    Lines that cannot be read are kept raw and counted; the exit code is 1 when there were any.

    Example: orchestrator import session.jsonl --task layernorm-backward --archive ./archive
    """
    from orchestrator.importing import ImportRequest, import_session
    from transcripts.store import Archive

    request = ImportRequest(path, task, deck, model, effort, dialect)
    done = import_session(Archive.open(archive_path(ctx, archive), create=True), request)
    printer(ctx, as_json).emit(_as_data(done), lambda console: console.print(_as_text(done)))
    source = done.folder.record.source
    if source is not None and source.bad_lines:
        raise typer.Exit(1)


def _as_data(done: "Imported") -> dict[str, Any]:
    record = done.folder.record
    return {
        "attempt": record.attempt_id,
        "new": done.is_new,
        "entrant": record.entrant.name,
        "task": record.cell.task,
        "end": record.outcome.end if record.outcome else None,
        "files": [file.model_dump() for file in record.submission],
        "notes": list(done.notes),
    }


def _as_text(done: "Imported") -> str:
    record = done.folder.record
    verb = "imported" if done.is_new else "known"
    lines = [f"{verb}: {record.attempt_id}  {record.entrant.name} x {record.cell.task}"]
    lines += [f"  rebuilt {file.path}, {file.size_bytes} bytes" for file in record.submission]
    lines += [f"  {note}" for note in done.notes]
    lines.append(f"  next: orchestrator grade {record.attempt_id}, then audit, board, replay")
    return "\n".join(lines)
