"""Writing files so that a kill or a full disk never leaves half of one."""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from transcripts.errors import ArchiveFault, ArchiveFull, ArchiveReadOnly
from transcripts.keys import is_id, new_id

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
_PASSING = {
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EINTR,
    errno.ESTALE,
    errno.ENOLCK,
    errno.ETIMEDOUT,
}
"""Refusals of a read that say nothing about the file."""

_TEMPORARY = ".tmp"


@contextlib.contextmanager
def faults(path: Path) -> Iterator[None]:
    """Turn what the file system refuses of a write into errors of the archive.

    Raises:
        ArchiveFull, ArchiveReadOnly: no space, no permission.
        ArchiveFault: anything else.
        FileExistsError, BlockingIOError: as they are; they answer a question.
    """
    try:
        yield
    except (FileExistsError, BlockingIOError):
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise ArchiveFull(
                f"no space left to write {path}: {error.strerror}. Nothing already written is "
                "damaged; free some space and run the same command again."
            ) from error
        if error.errno in _READ_ONLY:
            raise ArchiveReadOnly(
                f"cannot write {path}: {error.strerror}. Make the archive writable for this user, "
                "or name another one with --archive."
            ) from error
        raise _fault(path, error) from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Keep a fault of the moment apart from a file that is not there or broken.

    Raises:
        ArchiveFault: the same read may succeed later. All other OSErrors pass as they are.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _PASSING:
            raise _fault(path, error) from error
        raise


def _fault(path: Path, error: OSError) -> ArchiveFault:
    return ArchiveFault(
        f"the archive's storage failed at {path}: {error.strerror or error}. Nothing already "
        "written is damaged; see to the cause and run the same command again."
    )


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write or replace ``path``; readers see the old bytes or the new, never a mixture.

    ``durable=False`` leaves out the flushes: for what means nothing once its writer is gone.
    """
    with faults(path), _written(path, data, durable) as temporary:
        temporary.replace(path)
        if durable:
            sync_folder(path.parent)


def write_exclusive(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Create ``path`` whole; ``durable`` as in `write_atomic`.

    Raises:
        FileExistsError: it is there already; exactly one of several racing writers wins.
    """
    with faults(path), _written(path, data, durable) as temporary:
        os.link(temporary, path)
        if durable:
            sync_folder(path.parent)


def temporary_name() -> str:
    """A fresh name for what is being written; one that stays behind after a kill means nothing."""
    return f".{new_id()}{_TEMPORARY}"


def is_temporary(name: str) -> bool:
    """True for the names that ``temporary_name`` makes, and for nobody else's dot or tmp files."""
    return name.startswith(".") and name.endswith(_TEMPORARY) and is_id(name[1 : -len(_TEMPORARY)])


@contextlib.contextmanager
def _written(path: Path, data: bytes, durable: bool) -> Iterator[Path]:
    with temporary_file(path) as (temporary, descriptor):
        write_all(descriptor, data)
        if durable:
            os.fsync(descriptor)
        yield temporary


@contextlib.contextmanager
def temporary_file(path: Path) -> Iterator[tuple[Path, int]]:
    """A file beside ``path`` to be filled and renamed; removed if it is still there at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / temporary_name()
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        yield temporary, descriptor
    finally:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes; ``os.write`` may write fewer."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable."""
    _sync(folder)


def sync_tree(folder: Path) -> None:
    """Make everything in the folder durable."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                _sync(path)
        _sync(Path(parent))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(folder: Path) -> None:
    """Remove a folder whose content a sandbox may have made unreadable; absent is fine."""
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        return
    for parent, names, _ in os.walk(folder):
        for name in names:
            inner = Path(parent, name)
            if not inner.is_symlink():
                with contextlib.suppress(OSError):
                    inner.chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        with contextlib.suppress(FileNotFoundError):  # somebody else removes it too
            shutil.rmtree(folder)  # says what is in the way
