"""Foreign session logs become attempts: graded, audited, replayed and shown like our own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.plan import cell_key
from orchestrator.submission import digests
from tasks.deck import deck_names, load_deck
from tasks.loader import load_task
from tasks.spec import Task
from transcripts.dialects import read_log
from transcripts.dialects.base import ImportedLog
from transcripts.events import SessionEnd, Submission
from transcripts.keys import new_id
from transcripts.owner import this_process
from transcripts.records import (
    Attempt,
    CellKey,
    Entrant,
    ImportSource,
    ModelIdentity,
    Outcome,
    digest_of,
)
from transcripts.replay import rebuild_files, tool_steps
from transcripts.store import Archive, AttemptFolder
from transcripts.words import End


@dataclass(frozen=True)
class ImportRequest:
    """What the importer says of a log beyond what it says itself."""

    path: Path
    task: str
    deck: str = ""
    model: str = ""
    effort: str = ""
    dialect: str = "auto"


@dataclass(frozen=True)
class Imported:
    """An imported attempt and what to tell about it."""

    folder: AttemptFolder
    is_new: bool
    notes: tuple[str, ...]


def import_session(archive: Archive, request: ImportRequest) -> Imported:
    """Import one log. The same log for the same cell is imported once.

    Raises UserError, UnknownDialect, TaskError.
    """
    if not request.path.is_file():
        raise UserError(f"{request.path} is no file; give the session log itself")
    log = read_log(request.path, request.dialect)
    task = load_task(request.task)
    entrant, contradictions = _entrant(log, request)
    key = cell_key(request.deck or _deck_of(task), task, entrant)
    known = _known(archive, key, log.sha256)
    if known is not None and known.is_sealed:
        return Imported(known, False, ("this log is in the archive already",))
    rebuilt = rebuild_files(tool_steps(log.events), log.cwd)
    source = ImportSource(
        dialect=log.dialect,
        file_name=log.file_name,
        sha256=log.sha256,
        bad_lines=log.bad_lines,
        contradictions=tuple(contradictions),
    )
    # A kill in mid-import leaves an unsealed attempt: it is gone on with.
    folder = known or archive.create(_attempt(log, key, entrant, source))
    folder.add_source(log.file_name, log.data)
    outcome = _outcome(log, rebuilt.files)
    _write_transcript(folder, log, rebuilt.files, outcome)
    folder.seal(folder.record.model_copy(update={"outcome": outcome}), rebuilt.files)
    return Imported(folder, True, tuple(_notes(log, contradictions, rebuilt.problems)))


@dataclass(frozen=True)
class FilesRequest:
    """A submission whose session nobody has: its files, and who is said to have made them."""

    name: str  # where it was, for people
    files: Mapping[str, bytes]
    digest: str
    task: str
    model: str
    deck: str = ""
    left_out: tuple[str, ...] = ()


def import_files(archive: Archive, request: FilesRequest) -> Imported:
    """Import files alone, as an attempt without a session. The same files are imported once.

    Raises UserError, TaskError.
    """
    task = load_task(request.task)
    entrant = Entrant(
        model=ModelIdentity(name=request.model, served_id=request.model),
        route="imported:unknown",
        harness="unknown",
        harness_version="unknown",
        network="unknown",
        prompt_digest=digest_of([]),
    )
    key = cell_key(request.deck or _deck_of(task), task, entrant)
    known = _known(archive, key, request.digest)
    if known is not None and known.is_sealed:
        return Imported(known, False, ("these files are in the archive already",))
    now = datetime.now(UTC)
    record = Attempt(
        attempt_id=new_id(),
        cell=key,
        entrant=entrant,
        origin="imported",
        source=ImportSource(dialect="files", file_name=request.name, sha256=request.digest),
        started_at=now,
        ended_at=now,
    )
    folder = known or archive.create(record)
    end, reason = (End.SUBMITTED, "files") if request.files else (End.NO_SUBMISSION, "no_file")
    outcome = Outcome(end=end, reason=reason)
    with folder.open_writer(this_process(), durable=False) as writer:
        if request.files and writer.next_n == 0:
            handed_in = digests(request.files)
            writer.append(Submission, explicit=False, files=handed_in, left_out=request.left_out)
        writer.append(SessionEnd, outcome=outcome)
    folder.seal(folder.record.model_copy(update={"outcome": outcome}), request.files)
    return Imported(folder, True, request.left_out)


def _known(archive: Archive, key: CellKey, sha256: str) -> AttemptFolder | None:
    """The attempt of this cell that was made from the same log or files."""
    for folder in archive.cell_attempts(key):
        source = folder.record.source
        if source is not None and source.sha256 == sha256:
            return folder
    return None


def _attempt(log: ImportedLog, key: CellKey, entrant: Entrant, source: ImportSource) -> Attempt:
    return Attempt(
        attempt_id=new_id(),
        cell=key,
        entrant=entrant,
        origin="imported",
        source=source,
        started_at=log.started_at or datetime.now(UTC),
        ended_at=log.ended_at,
        usage=log.usage,
        cost_usd=log.cost_usd,
        steps=log.steps,
    )


def _write_transcript(
    folder: AttemptFolder, log: ImportedLog, files: dict[str, bytes], outcome: Outcome
) -> None:
    """Write the log's events, going on where an earlier import was cut off."""
    with folder.open_writer(this_process(), durable=False) as writer:
        for event in log.events[writer.next_n :]:
            writer.copy(event)
        if files:
            writer.append(Submission, explicit=False, files=digests(files))
        writer.append(SessionEnd, outcome=outcome)


def _outcome(log: ImportedLog, files: dict[str, bytes]) -> Outcome:
    if not files:
        return Outcome(end=End.NO_SUBMISSION, reason="no_file_written")
    return Outcome(end=End.SUBMITTED, reason="last_state" if log.finished else "log_ends_open")


def _entrant(log: ImportedLog, request: ImportRequest) -> tuple[Entrant, list[str]]:
    """Who made it: what the log says, or the importer where it says nothing or otherwise."""
    said = list(dict.fromkeys(model for _, model in log.models))
    contradictions = []
    if not request.model and len(said) != 1:
        raise UserError(
            f"{request.path.name} names {len(said)} models ({', '.join(said) or 'none'}): "
            "say whose attempt it is with --as MODEL"
        )
    name = request.model or said[0]
    if request.model and said and request.model not in said:
        contradictions.append(f"the log names {', '.join(said)}, imported as {request.model}")
    effort = request.effort or log.thinking_level
    if request.effort and log.thinking_level and request.effort != log.thinking_level:
        contradictions.append(
            f"the log says effort {log.thinking_level}, imported as {request.effort}"
        )
    providers = sorted({provider for provider, _ in log.models})
    entrant = Entrant(
        model=ModelIdentity(name=name, served_id=said[0] if said else name),
        route=f"imported:{','.join(providers) or 'unknown'}",
        harness=log.dialect,
        harness_version=log.version or "unknown",
        effort=effort,
        network="unknown",
        prompt_digest=digest_of([]),
    )
    return entrant, contradictions


def _deck_of(task: Task) -> str:
    for name in deck_names():
        if any(cell.task == task.name for cell in load_deck(name).cells):
            return name
    raise UserError(f"no deck holds `{task.name}`; say one with --deck")


def _notes(
    log: ImportedLog, contradictions: Iterable[str], problems: Iterable[str]
) -> Iterable[str]:
    yield from (f"line {line}: {reason} (kept raw)" for line, reason in log.problems)
    yield from (f"contradiction: {text}" for text in contradictions)
    yield from (f"not rebuilt: {text}" for text in problems)
