"""The wire of an attempt: what passed between a session and its model, call by call, as bytes.

A file an exchange in ``wire/``, numbered, compressed against the request before it: a conversation
repeats its past with every call, so kept bytes grow with what is new and not with the square of the
session. Every `KEY_EVERY`-th file stands alone, so that reading one needs only a few others.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from transcripts.disk import reading, write_atomic
from transcripts.errors import Corrupt

WIRE = "wire"
KEY_EVERY = 32
_LEVEL = 3
_MOST_WINDOW = 27  # log2 of bytes: further than the largest request that the gateway takes
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Passed:
    """One exchange. ``facts`` are JSON: dialect, path, status, times, rewrites and so on."""

    facts: dict[str, Any]
    received: bytes  # from the session
    sent: bytes  # to the provider
    response: bytes


class WireFolder:
    """Writes and reads ``wire/`` of an attempt's folder. One writer at a time."""

    def __init__(self, attempt: Path) -> None:
        self.path = attempt / WIRE
        self._count = len(list(self.path.glob("*.zst"))) if self.path.is_dir() else 0
        self._before = b""

    def put(self, passed: Passed) -> None:
        """Keep the next exchange. Raises ArchiveFull, ArchiveReadOnly, ArchiveFault."""
        number = self._count
        past = b"" if number % KEY_EVERY == 0 else self._before
        write_atomic(self.path / f"{number:06}.zst", _compressed(passed, past))
        self._count, self._before = number + 1, passed.received

    def exchanges(self) -> Iterator[Passed]:
        """All of them in order. Raises Corrupt."""
        before = b""
        for number, path in enumerate(sorted(self.path.glob("*.zst"))):
            past = b"" if number % KEY_EVERY == 0 else before
            passed = _unpacked(path, past)
            before = passed.received
            yield passed


def _compressed(passed: Passed, past: bytes) -> bytes:
    parts = (passed.received, passed.sent, passed.response)
    head = json.dumps({"facts": passed.facts, "sizes": [len(part) for part in parts]})
    data = b"".join([head.encode(), b"\n", *parts])
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL,
        window_log=min(_MOST_WINDOW, max(10, (len(past) + len(data)).bit_length())),
        enable_ldm=len(past) > 1 << 20,
        write_content_size=True,
        write_checksum=True,
    )
    compressor = zstandard.ZstdCompressor(
        dict_data=_dictionary(past), compression_params=parameters
    )
    return compressor.compress(data)


def _dictionary(past: bytes) -> zstandard.ZstdCompressionDict | None:
    if not past:
        return None
    return zstandard.ZstdCompressionDict(past, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def _unpacked(path: Path, past: bytes) -> Passed:
    try:
        with reading(path):
            packed = path.read_bytes()
        unpacker = zstandard.ZstdDecompressor(
            dict_data=_dictionary(past), max_window_size=1 << (_MOST_WINDOW + 1)
        )
        data = unpacker.decompress(packed, max_output_size=_MOST_BYTES)
        head, _, body = data.partition(b"\n")
        told = json.loads(head)
        received, sent, response = told["sizes"]
        if len(body) != received + sent + response:
            raise ValueError("it is cut")
    except (OSError, zstandard.ZstdError, ValueError, KeyError) as error:
        raise Corrupt(f"{path}: cannot be unpacked: {error}") from error
    return Passed(
        told["facts"],
        body[:received],
        body[received : received + sent],
        body[received + sent :],
    )
