"""``grades.jsonl``: the grades of a folder of foreign submissions, one JSON object a line.

A line is ``{"path", "model", "task", "result", "grade"}`` or ``{"qualification"}``. Lines are
added and never changed, each is on the disk before the next submission is graded, and running the
same command again reads which are done.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orchestrator.errors import UserError
from orchestrator.foreign import Foreign
from transcripts.records import Grade


class GradeFile:
    """An open file of grades, which no other process writes meanwhile."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.broken: list[int] = []  # numbers of lines that could not be read
        self.grades: list[Grade] = []
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
            self._read(number, line)

    def add(self, submission: Foreign, grade: Grade) -> None:
        """Append a grade."""
        head = {"path": submission.shown, "model": submission.model, "task": submission.task}
        self.write({**head, "result": grade.result, "grade": grade.model_dump(mode="json")})
        self.grades.append(grade)

    def write(self, record: dict[str, Any]) -> None:
        """Append one line; after a torn one it begins a new line. Raises UserError."""
        torn = not _ends_with_newline(self._descriptor)
        data = (b"\n" if torn else b"") + json.dumps(record).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror}") from error

    def _read(self, number: int, line: bytes) -> None:
        try:
            record = json.loads(line) if line.strip() else {}
            if "grade" in record:
                self.grades.append(Grade.model_validate_json(json.dumps(record["grade"])))
        except (ValueError, TypeError, ValidationError):
            self.broken.append(number)


@contextmanager
def opened(path: Path) -> Iterator[GradeFile]:
    """Open it for adding, made where it is absent. Raises UserError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        raise UserError(f"--out {path} cannot be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"another process writes {path}; give another --out") from error
        yield GradeFile(path, descriptor)
    finally:
        os.close(descriptor)


def _ends_with_newline(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
