"""Folders for the length of one job, which are found and removed when their process was killed.

Each holds a file that its process keeps locked. The kernel gives the lock back when the process
dies, however it dies, so that whoever gets it knows that the folder belongs to nobody.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

_PREFIX = "kernel-orchestrator-"
_LOCK = ".in-use"
_FRESH_S = 60.0
"""A folder younger than this may be about to get its lock."""


class Scratch:
    """A fresh folder that only this user can write; gone with `close` or at the block's end."""

    def __init__(self, kind: str) -> None:
        """``kind`` is for people who look into the temporary folder."""
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
        self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def folder(self, name: str = "files") -> Path:
        """A folder in it that holds nothing else."""
        made = self.path / name
        made.mkdir()
        return made

    def close(self) -> None:
        """Remove it. Idempotent; never raises."""
        if self._lock >= 0:
            remove(self.path)
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def reap() -> Sequence[str]:
    """Remove what killed processes of this user left; a line for each."""
    removed = []
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if _is_left_over(path):
            remove(path)
            removed.append(f"scratch {path.name}")
    return removed


def remove(folder: Path) -> None:
    """Remove a folder and all below it; links are not followed. Never raises.

    `shutil.rmtree` recurses, and gives up at a folder that its owner has closed; 1,500 folders in
    each other are more than Python's stack. The system's own tools walk any depth.
    """
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for tool in ("chmod", "-R", "u+rwX"), ("rm", "-rf"):
            subprocess.run([*tool, "--", str(folder)], capture_output=True, check=False)


def _is_left_over(path: Path) -> bool:
    try:
        status = path.lstat()
        if status.st_uid != os.geteuid() or not path.is_dir() or path.is_symlink():
            return False
        fd = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return path.is_dir() and time.time() - status.st_mtime > _FRESH_S
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
