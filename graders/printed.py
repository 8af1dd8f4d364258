"""What untrusted processes print: read to its end, kept in part."""

import os
import select
import subprocess
import time

CHUNK = 1 << 16
LOOK_S = 0.1


class Tail:
    """The last ``size`` bytes of a stream."""

    def __init__(self, size: int) -> None:
        self._size, self._bytes = size, bytearray()

    def add(self, data: bytes) -> None:
        """What comes next."""
        self._bytes += data
        del self._bytes[: -self._size]

    @property
    def text(self) -> str:
        """As text; bytes that are none become U+FFFD."""
        return self._bytes.decode("utf-8", "replace")


def last_words(popen: subprocess.Popen[bytes], s: float, size: int) -> tuple[int | None, str]:
    """Wait for a process with a pipe; its exit code (None: not in time) and what it printed last.

    A process that it leaves behind may hold the pipe open: nobody waits for that one.
    """
    assert popen.stdout is not None
    fd, tail = popen.stdout.fileno(), Tail(size)
    readable = select.poll()
    readable.register(fd, select.POLLIN)
    deadline = time.monotonic() + s
    while time.monotonic() < deadline:
        code = popen.poll()
        if readable.poll(0 if code is not None else LOOK_S * 1e3):
            data = os.read(fd, CHUNK)
            tail.add(data)
            if not data:
                readable.unregister(fd)  # closed; the process itself may go on
        elif code is not None:
            return code, tail.text
    return None, tail.text
