"""A harness's own output, kept beside the transcript as it came.

While the session lives it is a plain file that people may follow; `finish` packs it.
"""

import os
from pathlib import Path

import zstandard

from transcripts.disk import faults, temporary_file
from transcripts.redact import Secrets

LIVE, PACKED = "native.log", "native.log.zst"
MOST_BYTES = 512 << 20
"""Of one session; what comes after is dropped, and the log says so."""

_DROPPED = b"\n[the log was cut here: it had reached its limit]\n"


class NativeLog:
    """The log of one attempt's folder."""

    def __init__(self, attempt: Path, secrets: Secrets) -> None:
        self._folder, self._secrets = attempt, secrets
        self._size = 0
        with faults(attempt):
            self._file = (attempt / LIVE).open("wb")

    def write(self, data: bytes) -> None:
        """Add output. Raises ArchiveFull and its kind."""
        room = MOST_BYTES - self._size
        if room <= 0:
            return
        part = data if len(data) <= room else data[:room] + _DROPPED
        self._size += len(data)
        with faults(self._folder):
            self._file.write(part)
            self._file.flush()

    def finish(self) -> bytes:
        """Close and pack it; the whole output."""
        self._file.close()
        return pack(self._folder, self._secrets)


def pack(attempt: Path, secrets: Secrets) -> bytes:
    """Pack the live log, also one that a dead process left. Empty where there is none."""
    live = attempt / LIVE
    try:
        data = secrets.replace_bytes(live.read_bytes())
    except FileNotFoundError:
        return b""
    with faults(attempt), temporary_file(attempt / PACKED) as (temporary, descriptor):
        with os.fdopen(os.dup(descriptor), "wb") as target:
            target.write(zstandard.ZstdCompressor(write_checksum=True).compress(data))
        os.fsync(descriptor)
        temporary.replace(attempt / PACKED)
        live.unlink(missing_ok=True)
    return data


def native_log(attempt: Path) -> bytes:
    """The packed log; empty where there is none."""
    try:
        packed = (attempt / PACKED).read_bytes()
    except FileNotFoundError:
        return b""
    return zstandard.ZstdDecompressor().decompress(packed)
