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

from sandboxes.base import ExecResult, Limits, Mount, SandboxSpec, Snapshot
from sandboxes.errors import SandboxGone, SandboxStartFailed
from sandboxes.syscalls import filter_program
from sandboxes.workspace import Workspace

SUPERVISOR, DOORS = Path(__file__).parent / "inside.py", Path(__file__).parent / "doors.py"
FIRST_PORT = 4180
"""Of the doors, where a sandbox has a loopback of its own."""

START_S = 20.0
KILL_S = 30.0
"""How long the supervisor may take to kill everything; after that the sandbox itself is ended."""

_FOREVER_S = 1e8
_RESULT = struct.Struct(">iQI")
_HELLO, _RESULT_KIND, _EXEC, _KILL = b"h", b"r", b"x", b"k"
_FREEZE, _THAW, _DONE, _OUTPUT = b"f", b"t", b"d", b"o"
_CHUNK = 1 << 16  # of streamed output
_LOOK_S = 0.05
_DOORS_INSIDE = "/run/doors"


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
        doors: Sequence[str] = (),
    ) -> None:
        """Wait for the supervisor's greeting; ``end`` waits for, or forces, the sandbox's end.

        Raises SandboxStartFailed, with ``end`` called.
        """
        self.kind = kind
        self._wire, self._workspace, self._end = wire, workspace, end
        self._env, self._limits = dict(env), limits
        self._turn, self._closing, self._closed = threading.Lock(), threading.Lock(), False
        self._sending, self._still = threading.Lock(), _Stillness()
        workspace.hold()
        try:
            greeting = self._receive(time.monotonic() + START_S)
        except (SandboxGone, TimeoutError) as error:
            self.close()
            raise SandboxStartFailed(f"the {kind} sandbox did not start: {error}") from error
        assert greeting[:1] == _HELLO
        ports = struct.unpack(f">{len(doors)}H", greeting[1:])
        self.doors: Mapping[str, str] = {
            name: f"127.0.0.1:{port}" for name, port in zip(doors, ports, strict=True)
        }

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
        on_output: Callable[[bytes], None] | None = None,
    ) -> ExecResult:
        """Run a command; see `Sandbox.exec`. 126 and 127 mean that it could not be started."""
        if not argv:
            raise ValueError("a command needs at least one word")
        folder = os.path.join(self.home, cwd or "")  # noqa: PTH118 - a path of the sandbox
        variables = {**self._env, **(env or {})}
        request = _request(
            self._limits.output_bytes, on_output is not None, folder, argv, variables
        )
        with self._turn:
            started = time.monotonic()
            try:
                self._send(request)
                body, timed_out = self._result(started, min(timeout_s, _FOREVER_S), on_output)
                result = _finished(body, timed_out, time.monotonic() - started)
                self._workspace.settle()
                return result
            except TimeoutError as error:
                self.close()
                raise SandboxGone(f"the {self.kind} sandbox does not answer") from error
            except OSError as error:
                self.close()
                raise SandboxGone(f"the disk does not take what was written: {error}") from error
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
                try:
                    self._end()
                finally:
                    self._workspace.release()

    def freeze(self) -> None:
        """Stop everything; see `Sandbox.freeze`."""
        with self._still.changing:
            if not self._still.begin():
                return
            self._tell(_FREEZE)

    def thaw(self) -> None:
        """Let everything go on; see `Sandbox.thaw`."""
        with self._still.changing:
            if self._still.is_on:
                self._tell(_THAW)
                self._still.end()

    def _tell(self, what: bytes) -> None:
        """Send and wait for the answer, which a command that runs meanwhile may read for us."""
        self._still.answered.clear()
        deadline = time.monotonic() + KILL_S
        try:
            self._send(what)
            while not self._still.answered.wait(_LOOK_S):
                if self._turn.acquire(blocking=False):
                    try:
                        if not self._still.answered.is_set():
                            self._take(self._receive(deadline), None)
                    finally:
                        self._turn.release()
                elif time.monotonic() > deadline:
                    raise TimeoutError
        except TimeoutError as error:
            self.close()
            raise SandboxGone(f"the {self.kind} sandbox does not answer") from error

    def _result(
        self, started: float, timeout_s: float, on_output: Callable[[bytes], None] | None
    ) -> tuple[bytes, bool]:
        """The frame of a command's end, and whether it had to be killed for it."""
        killed_at = None
        still_s = self._still.total_s()
        while True:
            allowed = timeout_s + self._still.total_s() - still_s
            deadline = started + allowed if killed_at is None else killed_at + KILL_S
            if self._still.is_on:
                deadline = max(deadline, time.monotonic() + _LOOK_S)
            try:
                body = self._receive(deadline)
            except TimeoutError:
                if killed_at is not None:
                    raise
                if not self._still.is_on and time.monotonic() >= started + allowed:
                    killed_at = time.monotonic()
                    self._send(_KILL)
                continue
            if self._take(body, on_output):
                return body, killed_at is not None

    def _take(self, body: bytes, on_output: Callable[[bytes], None] | None) -> bool:
        """Deal with one frame; True for the end of a command."""
        if body[:1] == _OUTPUT and on_output is not None:
            on_output(body[1:])
        if body[:1] == _DONE:
            self._still.answered.set()
        return body[:1] == _RESULT_KIND

    def _send(self, body: bytes) -> None:
        try:
            with self._sending:
                self._wire.settimeout(KILL_S)
                self._wire.sendall(struct.pack(">I", len(body)) + body)
        except TimeoutError:
            raise
        except OSError as error:
            raise SandboxGone(f"the {self.kind} sandbox is gone: {error}") from error

    def _receive(self, deadline: float) -> bytes:
        """One frame. Raises TimeoutError, only ever before its first byte when all is well."""
        (size,) = struct.unpack(">I", self._read(4, deadline))
        if size > max(self._limits.output_bytes, _CHUNK) + 1024:
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


class _Stillness:
    """Whether a sandbox stands still, and for how long it has in all."""

    def __init__(self) -> None:
        self.changing, self.answered = threading.Lock(), threading.Event()
        self.is_on = False
        self._since, self._before_s = 0.0, 0.0

    def begin(self) -> bool:
        """False when it stands still already."""
        if self.is_on:
            return False
        self._since, self.is_on = time.monotonic(), True
        return True

    def end(self) -> None:
        self._before_s += time.monotonic() - self._since
        self.is_on = False

    def total_s(self) -> float:
        return self._before_s + (time.monotonic() - self._since if self.is_on else 0.0)


def _request(
    limit: int, streams: bool, folder: str, argv: Sequence[str], env: Mapping[str, str]
) -> bytes:
    """An ``x`` frame of `inside.py`."""
    strings = [folder, *argv, *(f"{name}={value}" for name, value in env.items())]
    encoded = [word.encode(errors="replace") for word in strings]
    header = _EXEC + struct.pack(">IIIB", limit, len(argv), len(env), streams)
    return header + b"".join(struct.pack(">I", len(word)) + word for word in encoded)


def _finished(body: bytes, timed_out: bool, duration_s: float) -> ExecResult:
    assert body[:1] == _RESULT_KIND
    code, dropped, head = _RESULT.unpack_from(body, 1)
    output = body[1 + _RESULT.size :]
    if dropped:
        line = f"\n[... {dropped} bytes left out here ...]\n".encode()
        output = output[:head] + line + output[head:]
    return ExecResult(None if timed_out else code, output, dropped, timed_out, duration_s)


def door_mounts(spec: SandboxSpec) -> list[Mount]:
    """The doors' sockets, for a sandbox that sees only what is mounted."""
    return [
        Mount(path, f"{_DOORS_INSIDE}/{number}") for number, path in enumerate(spec.doors.values())
    ]


def door_words(spec: SandboxSpec) -> list[str]:
    """The supervisor's arguments for doors that `door_mounts` shows."""
    return [f"{FIRST_PORT + number}:{_DOORS_INSIDE}/{number}" for number in range(len(spec.doors))]


def filter_words() -> list[str]:
    """The supervisor's argument for the filter of system calls, where nothing else applies it."""
    program = filter_program()
    return [f"filter:{program.hex()}"] if program else []
