"""What counts as handed in: the files of the workspace that the session did not start with."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from sandboxes.base import SnapshotFile
from transcripts.records import FileDigest


def handed_in(
    snapshot: Iterable[SnapshotFile], staged: Mapping[str, bytes]
) -> dict[str, SnapshotFile]:
    """Files that are new or changed against what was staged, by path."""
    return {file.path: file for file in snapshot if staged.get(file.path) != file.data}


def digests(files: Mapping[str, bytes]) -> tuple[FileDigest, ...]:
    """Path, size and sha256 of each file, sorted by path."""
    return tuple(
        FileDigest(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        for path, data in sorted(files.items())
    )


def write_folder(files: Mapping[str, bytes], folder: Path) -> Path:
    """Write files into a fresh folder that others may read and only we may write."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return folder
