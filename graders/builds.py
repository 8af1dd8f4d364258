"""One bounded build phase for each submission; what compilers leave serves its later workers.

The first worker of a candidate imports the submission and, where it is asked to, makes one call of
a smoke shape, so that what is compiled at the first call is compiled too. Then it packs the folder
that compilers are told to cache in (``graders.worker.caches``). The referee keeps the pack, without
looking into it, and gives it to each later worker, which unpacks a copy of its own before it
imports. Nothing is shared: the pack is sealed, and each copy lies in one worker's scratch.

On a GPU the worker that has run all cases has compiled for many sizes: its caches replace those of
the build, which spares each later worker the same compilations.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass

from graders.buffers import Buffer
from graders.errors import SubmissionFailed
from graders.referee import WorkerSession

ROOM, FILES = 512 << 20, 5000
"""Bounds of a pack. Objects and a library of one extension with CUTLASS are some tens of MB. Beyond
them nothing is kept: each worker then builds for itself, within the same deadline."""
PACKING_S = 30.0
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


@dataclass
class Built:
    """What became of a candidate's build. It happens once; a failure stays one."""

    done: bool = False
    failure: SubmissionFailed | None = None
    pack: int | None = None  # a sealed memfd

    @property
    def fds(self) -> tuple[int, ...]:
        """What a later worker is given."""
        return () if self.pack is None else (self.pack,)

    def once(self, build: Callable[[], int | None]) -> None:
        """Build unless it is done. Raises SubmissionFailed, the first time and each later one."""
        if not self.done:
            try:
                self.pack = build()
            except SubmissionFailed as failure:
                self.failure = failure
            self.done = True
        if self.failure is not None:
            raise SubmissionFailed(self.failure.result, str(self.failure))

    def renew(self, pack: int | None) -> None:
        """Replace the pack by a later one, of a worker that has compiled more."""
        if pack is not None:
            self.close()
            self.pack = pack

    def close(self) -> None:
        """Give the memory back."""
        if self.pack is not None:
            os.close(self.pack)
            self.pack = None


def packed(session: WorkerSession) -> int | None:
    """The compilers' caches of a worker, which is dead afterwards; None where there are none.

    A worker that cannot tell of them has none: the import that they come from has succeeded.
    """
    room = Buffer(ROOM, "caches")
    try:
        size = 0
        with contextlib.suppress(SubmissionFailed):
            answer = session.ask(
                {"op": "pack", "room": ROOM, "files": FILES}, PACKING_S, (room.fd,)
            )
            size = answer.get("size", 0)
        session.close()
        return _sealed(room, size) if type(size) is int and 0 < size <= ROOM else None
    finally:
        room.close()


def _sealed(room: Buffer, size: int) -> int:
    """A memfd with the first bytes of another, that nobody can write any more."""
    fd = os.memfd_create("pack", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    done = 0
    while done < size:
        done += os.write(fd, room.read(min(size - done, 1 << 24), done))
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd
