"""Sealed transcripts: independent zstd frames of about 1 MiB, and an index of them.

``transcript.jsonl.zst`` is an ordinary zstd file (``zstdcat`` reads it). ``.idx`` is JSON: for each
frame the first line, how many lines, its place in the compressed file and its size when unpacked.
So a page needs one frame, whatever the size of the transcript. The index follows from the frames,
byte for byte, so a lost one can be rebuilt.
"""

import bisect
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import zstandard

from transcripts.errors import Corrupt

FRAME_BYTES = 1 << 20
"""Unpacked bytes after which a frame is closed: one unpacks in about a millisecond."""
LEVEL = 3
"""zstd's default; higher levels gain a few percent on transcripts and cost several times."""
LARGEST_FRAME = 1 << 31
"""No honest writer makes a frame of a single line above this; a reader refuses to unpack it."""

_CHUNK = 1 << 18


class Frame(NamedTuple):
    """One frame; numbers of lines are 0-based."""

    first_line: int
    lines: int
    offset: int
    packed_bytes: int
    unpacked_bytes: int


def pack(lines: Iterable[bytes], target: BinaryIO) -> list[Frame]:
    """Write the lines as frames; memory stays at one frame."""
    frames: list[Frame] = []
    offset = first = count = 0
    buffer = bytearray()

    def close() -> None:
        nonlocal offset, first, count
        data = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(bytes(buffer))
        target.write(data)
        frames.append(Frame(first, count, offset, len(data), len(buffer)))
        offset, first, count = offset + len(data), first + count, 0
        buffer.clear()

    for line in lines:
        buffer += line
        count += 1
        if len(buffer) >= FRAME_BYTES:
            close()
    if count or not frames:
        close()
    return frames


def dump_index(frames: list[Frame]) -> bytes:
    """The index file."""
    return json.dumps({"version": 1, "frames": frames}, separators=(",", ":")).encode()


def load_index(data: bytes, place: Path) -> list[Frame]:
    """Parse an index file.

    Raises:
        Corrupt: it is not one.
    """
    try:
        document = json.loads(data)
        return [Frame(*map(int, frame)) for frame in document["frames"]]
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{place}: not an index; `archive repair` rebuilds it") from error


def lines_in(path: Path, wanted: list[Frame]) -> Iterator[bytes]:
    """The lines of some frames of a packed transcript.

    Raises:
        Corrupt: a frame does not unpack to what the index says.
    """
    with path.open("rb") as source:
        for frame in wanted:
            source.seek(frame.offset)
            data = _unpack(source.read(frame.packed_bytes), path)
            if len(data) != frame.unpacked_bytes:
                raise Corrupt(f"{path}: the frame at byte {frame.offset} does not fit the index")
            yield from io.BytesIO(data)


def _unpack(packed: bytes, place: Path) -> bytes:
    try:
        if zstandard.frame_content_size(packed) > LARGEST_FRAME:
            raise Corrupt(f"{place}: a frame claims more than {LARGEST_FRAME} bytes")
        return zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError as error:
        raise Corrupt(f"{place}: {error}") from error


def page(frames: list[Frame], first: int, count: int) -> list[Frame]:
    """The frames that hold lines ``first`` to ``first + count - 1``."""
    start = max(0, bisect.bisect_right([frame.first_line for frame in frames], first) - 1)
    return [
        frame
        for frame in frames[start:]
        if frame.first_line < first + count and frame.first_line + frame.lines > first
    ]


def lines_of(path: Path) -> Iterator[bytes]:
    """All lines of a packed transcript, without its index; memory stays flat."""
    try:
        with path.open("rb") as source:
            reader = zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True)
            yield from io.BufferedReader(reader, _CHUNK)
    except zstandard.ZstdError as error:
        raise Corrupt(f"{path}: {error}") from error


def rebuild_index(path: Path) -> list[Frame]:
    """The index of a packed transcript, from its frames; memory stays flat.

    Raises:
        Corrupt: it is not a row of whole frames.
    """
    frames: list[Frame] = []
    first = offset = 0
    with path.open("rb") as source:
        rest = source.read(_CHUNK)
        while rest:
            lines, packed, unpacked, rest = _measure(source, rest, path)
            frames.append(Frame(first, lines, offset, packed, unpacked))
            first, offset = first + lines, offset + packed
            rest = rest or source.read(_CHUNK)
    return frames


def _measure(source: BinaryIO, chunk: bytes, path: Path) -> tuple[int, int, int, bytes]:
    """Lines, packed and unpacked bytes of the frame that ``chunk`` begins, and what follows it."""
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    lines = packed = unpacked = 0
    while not unpacker.eof:
        if not chunk:
            raise Corrupt(f"{path}: the last frame is cut off")
        try:
            data = unpacker.decompress(chunk)
        except zstandard.ZstdError as error:
            raise Corrupt(f"{path}: {error}") from error
        lines, unpacked = lines + data.count(b"\n"), unpacked + len(data)
        packed += len(chunk)
        chunk = b"" if unpacker.eof else source.read(_CHUNK)
    return lines, packed - len(unpacker.unused_data), unpacked, unpacker.unused_data
