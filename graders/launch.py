"""Start a worker: a folder with what it may see, and a process in a jail around it."""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
MAX_FILES = 2000
MAX_BYTES = 256 << 20
"""Bounds of a submission; the archive's own snapshot limits are lower."""


@dataclass(frozen=True)
class World:
    """The two folders that a worker is shown, both read-only for it."""

    worker: Path  # worker.py, wire.py, adapter.py
    submission: Path
    isolation: str  # "bubblewrap" or "process"


@contextmanager
def world(adapter: Path, submission: Path | None, isolation: str) -> Iterator[World]:
    """Copy what a worker may see into a folder of its own; removed at the end."""
    root = Path(tempfile.mkdtemp(prefix="grading-"))
    try:
        root.chmod(0o755)  # another uid reads it
        worker, copied = root / "worker", root / "submission"
        worker.mkdir()
        copied.mkdir()
        for source in (HERE / "worker.py", HERE / "wire.py"):
            shutil.copyfile(source, worker / source.name)
        shutil.copyfile(adapter, worker / "adapter.py")
        if submission is not None:
            for relative, source in submission_files(submission):
                target = copied / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        _open_to_readers(root)
        yield World(worker, copied, isolation)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def submission_files(folder: Path) -> list[tuple[str, Path]]:
    """Regular files of a submission, sorted; links, devices and sockets are never followed."""
    found: list[tuple[str, Path]] = []
    total = 0
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        inside = not any(parent.is_symlink() for parent in path.relative_to(folder).parents)
        if not stat.S_ISREG(info.st_mode) or not inside or "__pycache__" in path.parts:
            continue
        total += info.st_size
        if total > MAX_BYTES or len(found) >= MAX_FILES:
            break
        found.append((path.relative_to(folder).as_posix(), path))
    return found


def _open_to_readers(root: Path) -> None:
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o444)


def start(place: World, memory_bytes: int, channel: socket.socket) -> subprocess.Popen[bytes]:
    """Start a worker on ``channel``; its output is one pipe. Raises GraderVoid."""
    import numpy

    site = [str(Path(numpy.__file__).parents[1])]
    options = {"fd": channel.fileno(), "site": site, "memory_bytes": memory_bytes}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(place.worker / "worker.py"), json.dumps(options)],
        pass_fds=(channel.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={"OPENBLAS_NUM_THREADS": "1", "PATH": os.defpath},
    )


def kill(popen: subprocess.Popen[bytes]) -> None:
    """Kill a worker and all below it."""
    popen.kill()
    popen.wait()


def shown(place: World) -> Path:
    """The submission's folder as the worker sees it."""
    return place.submission
