"""Where every attempt of an archive stands, in the words of `status`."""

from typing import Any

from transcripts.claims import holder
from transcripts.store import Archive, AttemptFolder


def standings(archive: Archive) -> list[dict[str, Any]]:
    """A row an attempt, oldest first."""
    return [_row(archive, folder) for folder in archive.attempts()]


def _row(archive: Archive, folder: AttemptFolder) -> dict[str, Any]:
    record = folder.record
    grades, audits = folder.grades(), folder.audits()
    return {
        "attempt": folder.id,
        "deck": record.cell.deck,
        "task": record.cell.task,
        "entrant": record.entrant.name,
        "origin": record.origin,
        "session": _session_word(archive, folder),
        "steps": record.steps,
        "grade": str(grades[-1].result) if grades else "none",
        "audit": str(audits[-1].verdict) if audits else "none",
        "problems": list(folder.problems),
    }


def _session_word(archive: Archive, folder: AttemptFolder) -> str:
    outcome = folder.record.outcome
    if folder.is_sealed:
        return str(outcome.end) if outcome else "sealed"
    if holder(archive, folder.record.cell, folder.id):
        return "running"
    return f"resumable ({outcome.reason})" if outcome else "resumable"
