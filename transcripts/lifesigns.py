"""Signs of life: how orchestrators on other hosts learn that one of them is gone.

Each keeps one file, ``claims/owners/<owner>``, and touches it every few seconds, however many
claims it holds. Nobody compares clocks: an observer calls an owner dead when its sign has not
changed for `TTL_S` of the observer's own monotonic time. A wall clock that jumps, or two hosts
that disagree about the time, change nothing.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from transcripts.disk import faults
from transcripts.keys import decode_name, encode_name
from transcripts.owner import is_live, is_of_this_host

TTL_S = 60.0
FOLDER = "owners"

_touching = threading.Lock()
_last_sign_ns = 0


def sign_path(claims: Path, owner: str) -> Path:
    """Where an owner's sign is."""
    return claims / FOLDER / encode_name(owner)


def give_sign(claims: Path, owner: str) -> None:
    """Say that ``owner`` lives. Needs no space once the file is there, so a full disk kills nobody.

    Raises ArchiveReadOnly, ArchiveFull or ArchiveFault where the file cannot be touched.
    """
    path = sign_path(claims, owner)
    stamp = _next_stamp()
    with faults(path):
        try:
            os.utime(path, ns=(stamp, stamp))
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, ns=(stamp, stamp))


def dead_signs(claims: Path) -> list[Path]:
    """Signs of processes of this host that are gone; other hosts' are left to them."""
    with faults(claims):
        signs = [path for path in (claims / FOLDER).glob("*") if path.is_file()]
    return [path for path in signs if _is_of_a_dead_neighbour(path.name)]


def _is_of_a_dead_neighbour(name: str) -> bool:
    try:
        owner = decode_name(name)
    except ValueError:
        return False  # somebody else's file
    return is_of_this_host(owner) and not is_live(owner)


def _next_stamp() -> int:
    """Now, for people; never the same twice, so that a clock set back is no missing sign."""
    global _last_sign_ns  # noqa: PLW0603 - one clock a process
    with _touching:
        _last_sign_ns = max(time.time_ns(), _last_sign_ns + 1_000_000)
        return _last_sign_ns


class Observer:
    """Remembers when it saw each sign change. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, ttl_s: float = TTL_S) -> None:
        self._clock, self._ttl_s = clock, ttl_s
        self._seen: dict[str, tuple[object, float]] = {}
        self._lock = threading.Lock()

    def is_alive(self, claims: Path, owner: str) -> bool:
        """False when the owner is gone: at once on this host, else after `TTL_S` without a sign."""
        if is_of_this_host(owner):
            return is_live(owner)
        path = sign_path(claims, owner)
        return self.changed_lately(path)

    def changed_lately(self, path: Path) -> bool:
        """False once the file has stayed as it is for `TTL_S` of this observer's time."""
        stamp, now = _stamp(path), self._clock()
        with self._lock:
            known, since = self._seen.get(str(path), (None, 0.0))
            if str(path) not in self._seen or known != stamp:
                known, since = stamp, now
                self._seen[str(path)] = (stamp, now)
        return now - since <= self._ttl_s


def _stamp(path: Path) -> object:
    """What changes with every sign; opening the file makes network file systems look again."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(descriptor)
        return (found.st_ino, found.st_mtime_ns)
    finally:
        os.close(descriptor)
