"""Machine-wide leases by name: one holder alone, or any number that share, whoever's processes.

A lease is an flock, so the kernel releases it when its holder dies, however it dies. The file lies
where every user of the machine can open it, and says who holds it alone. Who waits to hold it alone
keeps a second file, the gate, that everybody has to pass: those that share cannot keep him out.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from sandboxes.errors import LeaseBusy

_FOLDERS = (Path("/run/lock"), Path("/tmp"))  # noqa: S108 - sticky, shared by all users on purpose
_POLL_S = 0.05
GATE = ".gate"


@contextlib.contextmanager
def lease(name: str, timeout_s: float | None = None, *, shared: bool = False) -> Iterator[float]:
    """Hold the lease ``name``, alone or with others that share it; yields the seconds waited.

    Without a timeout it waits as long as it takes. Raises LeaseBusy, which names the holder.
    """
    started = time.monotonic()
    until = None if timeout_s is None else started + timeout_s
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with (
        _locked(name, name + GATE, fcntl.LOCK_EX, until) as gate,
        _locked(name, name, how, until) as fd,
    ):
        fcntl.flock(gate, fcntl.LOCK_UN)
        if shared:
            yield time.monotonic() - started
            return
        _write(fd, _describe_us())
        try:
            yield time.monotonic() - started
        finally:
            _write(fd, "")


@contextlib.contextmanager
def _locked(name: str, file: str, how: int, until: float | None) -> Iterator[int]:
    fd = _open(lease_path(file))
    try:
        while not _try_lock(fd, how):
            if until is not None and time.monotonic() >= until:
                raise LeaseBusy(f"{name} is held by {holder(name) or 'others, who share it'}")
            time.sleep(_POLL_S)
        yield fd
    finally:
        os.close(fd)


def holder(name: str) -> str | None:
    """Who holds the lease, in words, or None; a dead holder's words count for nothing."""
    try:
        fd = os.open(lease_path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.pread(fd, 4096, 0).decode(errors="replace")
        # A look by locking would for that moment keep out who tries just once.
        if not text or _try_lock(fd, fcntl.LOCK_SH):
            return None
    finally:
        os.close(fd)
    with contextlib.suppress(ValueError, KeyError, TypeError):
        who = json.loads(text)
        return f"process {who['pid']} of user {who['uid']} since {who['since']} ({who['command']})"
    return "a process that has not said who it is"


def lease_path(name: str) -> Path:
    """The lock file of a lease."""
    return _folder() / f"kernel-orchestrator.{re.sub(r'[^A-Za-z0-9.-]', '_', name)[:150]}.lock"


def _folder() -> Path:
    for folder in _FOLDERS[:-1]:
        with contextlib.suppress(OSError):
            if stat.S_IMODE(folder.stat().st_mode) == 0o1777:
                return folder
    return _FOLDERS[-1]


def open_lock_file(name: str) -> int:
    """The lock file of a name, for locks of another kind than a lease; whoever opens closes it."""
    return _open(lease_path(name))


def _open(path: Path) -> int:
    """Open, made if absent; in sticky folders the kernel refuses O_CREAT on others' files."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(fd, 0o666)  # whatever the umask
                return fd


def _try_lock(fd: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _describe_us() -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    command = " ".join(Path(word).name for word in sys.argv[:2])
    us = {"pid": os.getpid(), "uid": os.getuid(), "since": since, "command": command}
    return json.dumps(us)


def _write(fd: int, text: str) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode(), 0)
