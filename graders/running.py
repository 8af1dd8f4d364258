"""A started process of a submission: what it prints, how it fails, its memory, and its end."""

import contextlib
import fcntl
import struct
import subprocess
import termios
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from graders import failures, processes, surroundings
from graders.errors import GraderVoid, SubmissionFailed
from graders.printed import Tail
from sandboxes.cgroup import Cgroup
from sandboxes.jail import kill_tree
from sandboxes.scratch import remove
from transcripts.words import GradeResult

LOG_BYTES = 16 << 10
ENDING_S = 0.5  # for a process whose wire is closed to end
SETTLING_S = 0.2  # for what was printed before an answer to be read


@dataclass(frozen=True)
class Place:
    """Where it runs, as far as its failures are concerned."""

    folder: str  # the submission's, as it is for the process
    packages: tuple[str, ...]
    device: str


@dataclass
class Running:
    """One launch. ``mark`` is in the environment of all its processes."""

    popen: subprocess.Popen[bytes]
    mark: str
    confined: bool  # in a jail
    place: Place
    group: Cgroup | None = None
    scratch: Path | None = None  # of its own, on the host
    log: Tail = field(default_factory=lambda: Tail(LOG_BYTES))
    _reader: threading.Thread | None = None

    def keep_reading(self) -> None:
        """Read what is printed, on the side."""
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def printed(self) -> str:
        """The end of what has been printed by now."""
        until = time.monotonic() + SETTLING_S
        while self._unread() and time.monotonic() < until:
            time.sleep(0.001)
        return self.log.text

    def raised(self, answer: dict[str, Any]) -> SubmissionFailed | GraderVoid:
        """The failure that an error frame of it tells of."""
        where = self.place
        missing = partial(surroundings.missing_tool, packages=where.packages, device=where.device)
        return failures.raised(answer, failures.Surroundings(self.printed(), where.folder, missing))

    def ended(self) -> SubmissionFailed:
        """The failure of one that has closed its wire: how it ended, or that it lives on."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(timeout=ENDING_S)
        how = failures.ending(self.popen.returncode)
        if self.group is not None and self.group.oom_kills() > 0:
            return SubmissionFailed(GradeResult.MEMORY, f"{how}: out of the memory allowed to it")
        return SubmissionFailed(failures.BROKEN["closed"], how)

    def held_bytes(self) -> int:
        """Memory that all its processes hold together; 0 in a group whose cap counts it."""
        if self.group is not None and self.group.is_capped:
            return 0
        pids = processes.below(self.popen.pid)
        return processes.shared_bytes(pids) + sum(map(processes.resident_bytes, pids))

    def kill(self) -> None:
        """Kill it and all that it started; what left the tree is known by its mark. Idempotent."""
        kill_tree(self.popen)
        if self.group is not None:
            self.group.remove()
        if not self.confined:
            processes.kill(processes.marked(self.mark))
        if self._reader is not None:
            self._reader.join(timeout=5)
        if self.scratch is not None:
            remove(self.scratch)

    def _drain(self) -> None:
        assert self.popen.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while chunk := self.popen.stdout.read1(1 << 16):  # type: ignore[attr-defined]
                self.log.add(chunk)

    def _unread(self) -> int:
        assert self.popen.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            answer = fcntl.ioctl(self.popen.stdout.fileno(), termios.FIONREAD, bytes(4))
            return int(struct.unpack("i", answer)[0])
        return 0
