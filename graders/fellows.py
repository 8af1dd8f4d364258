"""Grading processes of this machine that have a GPU open: none takes another for a stranger.

One that waits for its turn keeps its context, which takes memory and no time. Each holds a record
lock on the byte of one file that its process number names; the kernel gives it back when the
process dies, and tells whoever asks which processes hold one, counted as he counts them.
"""

import fcntl
import os
import struct
from functools import cache

from sandboxes.lease import open_lock_file

_FLOCK = "hhqqi4x"  # struct flock of <fcntl.h> on 64-bit Linux: type, whence, start, length, pid


def join(uuid: str) -> None:
    """Say, for as long as this process lives, that its use of this GPU is a grader's."""
    fcntl.lockf(_file(uuid), fcntl.LOCK_EX, 1, os.getpid())


def fellows(uuid: str) -> frozenset[int]:
    """The other processes that have joined."""
    found: set[int] = set()
    start = 0
    while True:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, 0, 0)
        answer = fcntl.fcntl(_file(uuid), fcntl.F_GETLK, asked)
        kind, _, begin, length, pid = struct.unpack(_FLOCK, answer)
        if kind == fcntl.F_UNLCK:
            return frozenset(found)
        found.add(pid)
        start = begin + length


@cache
def _file(uuid: str) -> int:
    """Open for good: closing any descriptor of the file would give this process's lock back."""
    return open_lock_file(f"{uuid}.graders")
