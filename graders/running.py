"""A started process of a submission: what it prints, what memory it takes, and its end."""

import contextlib
import fcntl
import struct
import subprocess
import termios
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from graders import clearing, failures, processes
from graders.printed import Tail
from sandboxes.cgroup import Cgroup
from sandboxes.jail import kill_tree

LOG_BYTES = 16 << 10
ENDING_S = 0.5  # for a process whose wire is closed to end
SETTLING_S = 0.2  # for what was printed before an answer to be read


@dataclass
class Running:
    """One launch. ``mark`` is in the environment of all its processes, ``confined`` in a jail."""

    popen: subprocess.Popen[bytes]
    mark: str
    confined: bool
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

    def ending(self) -> str:
        """How it ended, or that it lives on, for one that has closed its wire."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(timeout=ENDING_S)
        return failures.ending(self.popen.returncode)

    def was_out_of_memory(self) -> bool:
        """True when the kernel killed one of its processes for the memory of its group."""
        return self.group is not None and self.group.oom_kills() > 0

    def shared_bytes(self) -> int:
        """Shared memory that it holds; 0 in a group, whose cap counts it."""
        if self.group is not None:
            return 0
        return processes.shared_bytes(processes.below(self.popen.pid))

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
            clearing.remove(self.scratch)

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
