"""Grades, audits and notes: added to a sealed attempt, each a file that seals itself."""

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from transcripts.disk import reading, write_exclusive
from transcripts.errors import Corrupt
from transcripts.records import Audit, Grade, canonical_json, is_intact, sealed

R = TypeVar("R", Grade, Audit)


def add(path: Path, record: Grade | Audit) -> Path:
    """Create the record's file; the same bytes again are fine.

    Raises:
        Corrupt: another record has that id.
    """
    data = canonical_json(sealed(record)) + b"\n"
    try:
        write_exclusive(path, data)
    except FileExistsError as error:
        if path.read_bytes() != data:
            raise Corrupt(f"{path} is there with other content; nothing was overwritten") from error
    return path


def files(folder: Path) -> list[Path]:
    """The records in a folder, which need not be there, oldest first."""
    with reading(folder):
        return sorted(folder.glob("*.json"))


def load(path: Path) -> dict[str, Any]:
    """The record of a self-sealed file, as JSON.

    Raises:
        Corrupt: it cannot be read, or its digest does not match.
    """
    try:
        with reading(path):
            document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Corrupt(f"{path}: cannot be read: {error}") from error
    if not isinstance(document, dict) or not is_intact(document):
        raise Corrupt(f"{path}: changed after it was written")
    record = document["record"]
    if not isinstance(record, dict):
        raise Corrupt(f"{path}: not a record")
    return record


def load_as(path: Path, kind: type[R], seal_digest: str | None) -> R:
    """A grade or audit that belongs to the attempt with this seal.

    Raises:
        Corrupt: it is not intact, not of that kind, or of another attempt.
    """
    try:
        record = kind.model_validate(load(path))
    except ValidationError as error:
        raise Corrupt(f"{path}: not a {kind.__name__.lower()}") from error
    if record.attempt_seal != seal_digest:
        raise Corrupt(f"{path}: names another seal than this attempt's")
    return record
