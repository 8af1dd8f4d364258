"""Grading processes of this machine that have a GPU open: none takes another for a stranger.

One that waits for its turn keeps its context, which takes memory and no time. Each holds a record
lock on a byte of one file, by its process number where nobody else has it; the kernel gives it back
when the process dies, and tells whoever asks which processes hold one, counted as he counts them.
One in another pid namespace cannot be named to him, and stays a stranger.
"""

import fcntl
import os
import struct
from functools import cache

from sandboxes.lease import open_lock_file

_FLOCK = "hhqqi4x"  # struct flock of <fcntl.h> on 64-bit Linux: type, whence, start, length, pid

_MOST = 1 << 22  # PID_MAX_LIMIT of 64-bit Linux


def join(uuid: str) -> None:
    """Say, for as long as this process lives, that its use of this GPU is a grader's."""
    for place in range(os.getpid(), _MOST):  # another namespace may have a process of our number
        try:
            fcntl.lockf(_file(uuid), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: it is held
            continue
        return


def fellows(uuid: str) -> frozenset[int]:
    """The other processes that have joined."""
    found: set[int] = set()
    left = [(0, _MOST)]  # stretches of the file: the kernel names any lock of one, not the first
    while left:
        start, end = left.pop()
        if start < end and (lock := _lock_in(uuid, start, end)) is not None:
            begin, pid = lock
            found.add(pid)
            left += [(start, begin), (begin + 1, end)]
    return frozenset(found - {0})  # the kernel's word for one that it cannot name here


def _lock_in(uuid: str, start: int, end: int) -> tuple[int, int] | None:
    """Place and holder of a lock of another process."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0)
    answer = fcntl.fcntl(_file(uuid), fcntl.F_GETLK, asked)
    kind, _, begin, _, pid = struct.unpack(_FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else (begin, pid)


@cache
def _file(uuid: str) -> int:
    """Open for good: closing any descriptor of the file would give this process's lock back."""
    return open_lock_file(f"{uuid}.graders")
