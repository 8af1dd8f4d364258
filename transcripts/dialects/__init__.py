"""Reading the logs of other tools. Found by content: ``read_log(path)``."""

import hashlib
from pathlib import Path

from transcripts.dialects.base import Dialect, ImportedLog, LogProblem
from transcripts.dialects.pi import PiDialect
from transcripts.errors import UnknownDialect

__all__ = ["DIALECTS", "Dialect", "ImportedLog", "LogProblem", "read_log"]

DIALECTS: dict[str, Dialect] = {"pi": PiDialect()}
"""By short name, in the order in which they are asked."""


def read_log(path: Path | str, dialect: str = "auto") -> ImportedLog:
    """Read a log; what cannot be parsed is kept raw and listed in ``problems``.

    Raises:
        UnknownDialect: no reader has that name, or none recognises the content.
        OSError: the file cannot be read.
    """
    path = Path(path)
    data = path.read_bytes()
    reader = _named(dialect) if dialect != "auto" else _recognised(path, data)
    return reader.read(data, path.name, hashlib.sha256(data).hexdigest())


def _named(name: str) -> Dialect:
    if name not in DIALECTS:
        raise UnknownDialect(f"no dialect {name!r}; known are: {', '.join(DIALECTS)}")
    return DIALECTS[name]


def _recognised(path: Path, data: bytes) -> Dialect:
    for reader in DIALECTS.values():
        if reader.recognises(data):
            return reader
    raise UnknownDialect(
        f"{path} is not a log that is known here ({', '.join(DIALECTS)}); "
        "name its dialect with --dialect if it is one of these and its beginning is broken"
    )
