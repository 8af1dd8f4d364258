"""Sealing: a finished attempt becomes a set of files that prove each other.

Order, so that a kill between any two steps leaves either a live attempt that can be sealed again
or a sealed one: packed files beside the live ones, then ``attempt.json``, then ``seal.json``
(created exclusively), and only then the live transcript and the workspace go.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal

import zstandard

from transcripts import frames
from transcripts.disk import (
    faults,
    is_temporary,
    reading,
    remove_tree,
    sync_folder,
    temporary_file,
    write_atomic,
    write_exclusive,
)
from transcripts.errors import AlreadySealed, Corrupt
from transcripts.keys import relative_path
from transcripts.records import FileDigest, Record, canonical_json, is_intact, sealed

SEAL = "seal.json"
LIVE_TRANSCRIPT = "transcript.jsonl"
PACKED_TRANSCRIPT = "transcript.jsonl.zst"
INDEX = "transcript.jsonl.zst.idx"
WORKSPACE = "workspace"
WORKSPACE_ARCHIVE = "workspace.tar.zst"
SUBMISSION = "submission"
BLOBS = "blobs"
TORN = "torn"
"""Folder of incomplete last lines, each in a file named after its offset in the transcript."""
OWNER = "owner.txt"
"""Who writes the live transcript, for people."""
ADDED_LATER = ("grades", "audits", "notes")
"""Folders that grow after the seal; each of their files seals itself."""

_UNSEALED = {SEAL, LIVE_TRANSCRIPT, WORKSPACE, OWNER, *ADDED_LATER}

WorkspaceFile = tuple[str, bytes, bool]
"""Relative path, content, executable."""


class Seal(Record):
    """``seal.json``, self-sealed too. The digest of its bytes is what grades and audits name."""

    schema_version: Literal[1] = 1
    attempt_id: str
    files: dict[str, str]  # relative path: sha256
    chain: str  # the last link of the transcript
    events: int
    sealed_at: datetime


def load_seal(folder: Path) -> tuple[Seal, str] | None:
    """The seal and its digest, None while the attempt lives.

    Raises:
        Corrupt: there is a seal that cannot be read.
    """
    try:
        with reading(folder / SEAL):
            data = (folder / SEAL).read_bytes()
    except FileNotFoundError:
        return None
    try:
        document = json.loads(data)
        if not isinstance(document, dict) or not is_intact(document):
            raise Corrupt(f"{folder / SEAL}: changed after it was written")
        return Seal.model_validate(document["record"]), hashlib.sha256(data).hexdigest()
    except (ValueError, KeyError) as error:
        raise Corrupt(f"{folder / SEAL}: not a seal") from error


def pack_transcript(folder: Path, size: int) -> None:
    """Write the first ``size`` bytes of the live transcript as frames, and their index."""
    packed = folder / PACKED_TRANSCRIPT
    with faults(packed), temporary_file(packed) as (temporary, descriptor):
        with os.fdopen(os.dup(descriptor), "wb") as target:
            index = frames.pack(_lines(folder / LIVE_TRANSCRIPT, size), target)
        os.fsync(descriptor)
        temporary.replace(packed)
    write_atomic(folder / INDEX, frames.dump_index(index))


def _lines(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as source:
        while source.tell() < size:
            yield source.readline()


def write_submission(folder: Path, files: Mapping[str, bytes]) -> None:
    """The files handed in; leftovers of a seal that did not finish go."""
    target = folder / SUBMISSION
    with faults(target):
        remove_tree(target)
        target.mkdir()
    for path, data in files.items():
        write_atomic(target / relative_path(path), data)


def submission_digests(folder: Path) -> tuple[FileDigest, ...]:
    """The files in ``submission/``, sorted by path."""
    target = folder / SUBMISSION
    return tuple(
        FileDigest(
            path=path.relative_to(target).as_posix(),
            size_bytes=path.stat().st_size,
            sha256=file_digest(path),
        )
        for path in sorted(target.rglob("*"))
        if path.is_file()
    )


def write_workspace(folder: Path, files: Iterable[WorkspaceFile]) -> None:
    """What changed in the workspace, as one archive without times or owners."""
    path = folder / WORKSPACE_ARCHIVE
    with faults(path), temporary_file(path) as (temporary, descriptor):
        with os.fdopen(os.dup(descriptor), "wb") as target:
            _pack_files(target, files)
        os.fsync(descriptor)
        temporary.replace(path)
        sync_folder(folder)


def _pack_files(target: BinaryIO, files: Iterable[WorkspaceFile]) -> None:
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    with (
        compressor.stream_writer(target, closefd=False) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, data, executable in files:
            member = tarfile.TarInfo(str(relative_path(name)))
            member.size = len(data)
            member.mode = 0o755 if executable else 0o644
            archive.addfile(member, io.BytesIO(data))


def read_workspace(folder: Path) -> Iterator[WorkspaceFile]:
    """The files of a sealed attempt's workspace.

    Raises:
        Corrupt: it is missing or cannot be unpacked.
    """
    path = folder / WORKSPACE_ARCHIVE
    try:
        with reading(path), path.open("rb") as source:
            unpacked = zstandard.ZstdDecompressor().stream_reader(source)
            with tarfile.open(fileobj=unpacked, mode="r|") as archive:
                for member in archive:
                    data = archive.extractfile(member)
                    if data is not None:
                        yield member.name, data.read(), bool(member.mode & 0o100)
    except (OSError, zstandard.ZstdError, tarfile.TarError) as error:
        raise Corrupt(f"{path}: cannot be unpacked: {error}") from error


def write_seal(folder: Path, attempt_id: str, link: str, events: int) -> Seal:
    """Digest the attempt's files and create ``seal.json``.

    Raises:
        AlreadySealed: somebody else did.
    """
    seal = Seal(
        attempt_id=attempt_id,
        files=digests(folder),
        chain=link,
        events=events,
        sealed_at=datetime.now(UTC),
    )
    try:
        write_exclusive(folder / SEAL, canonical_json(sealed(seal)) + b"\n")
    except FileExistsError as error:
        raise AlreadySealed(f"attempt {attempt_id} was sealed by somebody else") from error
    return seal


def digests(folder: Path) -> dict[str, str]:
    """sha256 of every file that a seal covers, by relative path.

    What is being written is left out at the top alone: below it, any name may be an agent's.
    """
    found: dict[str, str] = {}
    for entry in sorted(folder.iterdir()):
        if entry.name in _UNSEALED or is_temporary(entry.name):
            continue
        files = [entry] if not entry.is_dir() else sorted(entry.rglob("*"))
        for path in files:
            if path.is_file():
                found[path.relative_to(folder).as_posix()] = file_digest(path)
    return found


def remove_temporaries(folder: Path) -> None:
    """What killed writers left in a live attempt. Call it with the transcript locked."""
    for part in (folder, folder / BLOBS, folder / TORN):
        for path in part.glob(".*"):
            if is_temporary(path.name):
                path.unlink(missing_ok=True)


def file_digest(path: Path) -> str:
    """sha256 (hex) of a file."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def remove_live_files(folder: Path) -> None:
    """What a sealed attempt no longer needs; a kill may have left it."""
    remove_tree(folder / WORKSPACE)
    (folder / OWNER).unlink(missing_ok=True)
    for path in folder.glob(".*"):
        if is_temporary(path.name):
            path.unlink(missing_ok=True)
    (folder / LIVE_TRANSCRIPT).unlink(missing_ok=True)  # last: its presence says that work is left
