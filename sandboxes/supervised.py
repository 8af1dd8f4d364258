"""The outside of a sandbox whose commands are run by `inside.py`; every kind here is one.

One supervisor serves a session's commands, so that a command costs a process and not a sandbox. The
clock is here: the supervisor ends commands only when it is told to.
"""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sandboxes.base import ExecResult, Limits, Snapshot
from sandboxes.errors import SandboxGone, SandboxStartFailed
from sandboxes.workspace import Workspace

SUPERVISOR = Path(__file__).parent / "inside.py"
START_S = 20.0
KILL_S = 30.0
"""How long the supervisor may take to kill everything; after that the sandbox itself is ended."""

_FOREVER_S = 1e8
_RESULT = struct.Struct(">iQI")
_HELLO, _RESULT_KIND, _EXEC, _KILL = b"h", b"r", b"x", b"k"


class SupervisedSandbox:
    """A sandbox behind a wire. Commands of several threads run one after the other."""

    def __init__(
        self,
        kind: str,
        wire: socket.socket,
        workspace: Workspace,
        *,
        env: Mapping[str, str],
        limits: Limits,
        end: Callable[[], None],
    ) -> None:
        """Wait for the supervisor's greeting; ``end`` waits for, or forces, the sandbox's end.

        Raises SandboxStartFailed, with ``end`` called.
        """
        self.kind = kind
        self._wire, self._workspace, self._end = wire, workspace, end
        self._env, self._limits = dict(env), limits
        self._turn, self._closing, self._closed = threading.Lock(), threading.Lock(), False
        try:
            greeting = self._receive(time.monotonic() + START_S)
        except (SandboxGone, TimeoutError) as error:
            self.close()
            raise SandboxStartFailed(f"the {kind} sandbox did not start: {error}") from error
        assert greeting == _HELLO

    @property
    def home(self) -> str:
        """The workspace's path as seen by commands."""
        return self._workspace.home

    def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> ExecResult:
        """Run a command; see `Sandbox.exec`. 126 and 127 mean that it could not be started."""
        if not argv:
            raise ValueError("a command needs at least one word")
        folder = os.path.join(self.home, cwd or "")  # noqa: PTH118 - a path of the sandbox
        request = _request(self._limits.output_bytes, folder, argv, {**self._env, **(env or {})})
        with self._turn:
            started = time.monotonic()
            try:
                self._send(request)
                body, timed_out = self._result(started + min(timeout_s, _FOREVER_S))
                return _finished(body, timed_out, time.monotonic() - started)
            except TimeoutError as error:
                self.close()
                raise SandboxGone(f"the {self.kind} sandbox does not answer") from error
            except BaseException:
                self.close()  # an answer may be on its way that nobody would expect
                raise

    def put(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file; see `Sandbox.put`."""
        self._workspace.put(path, data, executable=executable)

    def get(self, path: str) -> bytes:
        """Read a file; see `Sandbox.get`."""
        return self._workspace.get(path)

    def snapshot(self) -> Snapshot:
        """All files; see `Sandbox.snapshot`."""
        return self._workspace.snapshot()

    def close(self) -> None:
        """Hang up, on which the supervisor ends everything; then see that it did."""
        with contextlib.suppress(OSError):  # it may have been hung up already
            self._wire.shutdown(socket.SHUT_RDWR)  # also wakes a command that waits in a thread
        with self._closing:
            if not self._closed:
                self._closed = True
                self._wire.close()
                self._end()

    def _result(self, deadline: float) -> tuple[bytes, bool]:
        try:
            return self._receive(deadline), False
        except TimeoutError:
            self._send(_KILL)
        return self._receive(time.monotonic() + KILL_S), True

    def _send(self, body: bytes) -> None:
        try:
            self._wire.settimeout(KILL_S)
            self._wire.sendall(struct.pack(">I", len(body)) + body)
        except TimeoutError:
            raise
        except OSError as error:
            raise SandboxGone(f"the {self.kind} sandbox is gone: {error}") from error

    def _receive(self, deadline: float) -> bytes:
        """One frame. Raises TimeoutError, only ever before its first byte when all is well."""
        (size,) = struct.unpack(">I", self._read(4, deadline))
        if size > self._limits.output_bytes + 1024:
            raise SandboxGone(f"the {self.kind} sandbox sends what is no frame")
        return self._read(size, max(deadline, time.monotonic() + KILL_S))

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            left = max(deadline, time.monotonic() + KILL_S) if data else deadline
            try:
                self._wire.settimeout(max(left - time.monotonic(), 1e-6))
                part = self._wire.recv(size - len(data))
            except TimeoutError:
                raise
            except OSError as error:
                raise SandboxGone(f"the {self.kind} sandbox is gone: {error}") from error
            if not part:
                raise SandboxGone(f"the {self.kind} sandbox is gone: it closed the wire")
            data += part
        return bytes(data)


def _request(limit: int, folder: str, argv: Sequence[str], env: Mapping[str, str]) -> bytes:
    """An ``x`` frame of `inside.py`."""
    strings = [folder, *argv, *(f"{name}={value}" for name, value in env.items())]
    encoded = [word.encode(errors="replace") for word in strings]
    header = _EXEC + struct.pack(">III", limit, len(argv), len(env))
    return header + b"".join(struct.pack(">I", len(word)) + word for word in encoded)


def _finished(body: bytes, timed_out: bool, duration_s: float) -> ExecResult:
    assert body[:1] == _RESULT_KIND
    code, dropped, head = _RESULT.unpack_from(body, 1)
    output = body[1 + _RESULT.size :]
    if dropped:
        line = f"\n[... {dropped} bytes left out here ...]\n".encode()
        output = output[:head] + line + output[head:]
    return ExecResult(None if timed_out else code, output, dropped, timed_out, duration_s)
