"""What counts as handed in: the files of the workspace that the session did not start with."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from sandboxes.base import SnapshotFile
from sandboxes.staging import plant_canaries, public_files
from tasks.spec import Task
from transcripts.records import FileDigest
from transcripts.redact import Secrets


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


def staged_files(task: Task, attempt_id: str) -> dict[str, bytes]:
    """What a session starts with: the task's public part and its own canaries."""
    files = public_files(task.folder / "public")
    canaries, _ = plant_canaries(attempt_id)
    return {**files, **canaries}


def without_secrets(files: Mapping[str, SnapshotFile], secrets: Secrets) -> dict[str, SnapshotFile]:
    """Keys never enter a sandbox, but a model may know one and write it down."""
    clean = (
        replace(file, path=secrets.replace_text(file.path), data=secrets.replace_bytes(file.data))
        for file in files.values()
    )
    return {file.path: file for file in clean}
