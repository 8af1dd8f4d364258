"""Content above 64 KiB: kept whole beside the transcript, under the sha256 of its bytes."""

import hashlib
from pathlib import Path

import zstandard

from transcripts.disk import reading, write_atomic
from transcripts.errors import Corrupt
from transcripts.events import BlobRef

INLINE_BYTES = 64 * 1024
SHOWN_CHARACTERS = 16 * 1024
"""Of head and of tail each, in the event whose content went to a blob."""


def put_blob(folder: Path, data: bytes) -> BlobRef:
    """Store the bytes once."""
    ref = BlobRef(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
    path = _path(folder, ref.sha256)
    if not path.exists():
        write_atomic(path, zstandard.ZstdCompressor(write_checksum=True).compress(data))
    return ref


def get_blob(folder: Path, ref: BlobRef) -> bytes:
    """The bytes of a blob.

    Raises:
        Corrupt: it is missing, or its bytes are not those of the reference.
    """
    path = _path(folder, ref.sha256)
    try:
        with reading(path):
            packed = path.read_bytes()
        data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=ref.size_bytes)
    except (OSError, zstandard.ZstdError) as error:
        raise Corrupt(f"{path}: {error}") from error
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise Corrupt(f"{path}: the content is not what its name says")
    return data


def encode(text: str) -> bytes:
    """UTF-8; lone surrogates (undecodable bytes of a tool's output) are kept."""
    return text.encode("utf-8", "surrogatepass")


def shorten(text: str) -> str:
    """Head and tail, and how much is between them."""
    left_out = len(text) - 2 * SHOWN_CHARACTERS
    note = f"\n[... {left_out} characters are kept in a blob ...]\n"
    return text[:SHOWN_CHARACTERS] + note + text[-SHOWN_CHARACTERS:]


def _path(folder: Path, sha256: str) -> Path:
    return folder / f"{sha256}.zst"
