"""The wire between referee and worker: questions over a socket, answers over a pipe.

Standard library only, no imports from this product: the worker runs an interpreter without our
packages and carries a copy of this file beside it.

A frame is a 4-byte big-endian length, then that many bytes of JSON (an object, at most
``MAX_HEADER_BYTES``). Questions go over a Unix stream socket, where file descriptors travel beside
them (SCM_RIGHTS, at most ``MAX_DESCRIPTORS``); the referee never reads it, and its end is shut for
reading, so that a write of the worker's fails. Answers come over a pipe, which carries bytes and
nothing else: no descriptor of a submission's can reach the referee.

Arrays never travel in frames: they lie in memfds. A *leaf* describes one array in a memfd::

    {"name": "x", "dtype": "float32", "shape": [2, 3], "strides": [12, 4], "offset": 0}

``strides`` and ``offset`` are bytes; a leaf of an output has no ``strides``, and may say ``type``,
``holds`` (the dtype in there) and ``aliases``. Its ``name`` is a path: ``y``, ``1`` of a tuple,
``state.k`` one level down. NumPy has no bfloat16 and no float8: they travel as their bits,
``uint16`` and ``uint8``.

Referee to worker                                         worker to referee
``build``  folder, file, names, absent, outputs, written  ``ok``
           (output: the input that holds it), device
``setup``  params                                         ``ok``
``call``   n, inputs (leaves), room; fds: [input, output] ``ok``  n, outputs (leaves)
           or none: the memory of the last call again

The worker's first frame is ``{"ok": "ready"}``. A ``call`` may say ``dirty`` (a byte to leave on
the heap before it, in blocks of ``sizes``), ``scribble`` (overwrite the returned objects after they
were copied), ``recycle`` (new objects over the same memory), ``watch`` (copy device inputs back, so
that a change shows) and ``extras`` (copy leaves that are not declared too): the probes' part that
has to run in there.

A ``build`` may bring one descriptor: a pack of compilers' caches, to unpack first. ``pack``, with
``room``, ``files`` and a memfd, is answered by the ``size`` of the pack that was written to it.
What ``profile``, ``probe``, ``pace`` and ``events`` say stands in the files that answer them.

Any answer may instead be ``{"error": <kind>, "bases": [...], "text": ..., "where": [...]}``, kind
one of ``import, setup, call, output``, beside ``causes`` (types that it was raised from) and, of an
OSError, ``errno`` and ``file``. Whatever the worker says is a claim; the referee trusts
lengths, times and bytes that it has read itself, and nothing else.
"""

import array
import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

MAX_HEADER_BYTES = 1 << 20
MAX_DESCRIPTORS = 16
LOOK_S = 0.1
_LENGTH = struct.Struct(">I")

DTYPES = frozenset(
    {
        *("bool", "float16", "float32", "float64"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    }
)
"""Names of the dtypes that an array in a memfd can have."""


class WireBroken(Exception):
    """The other side closed its end, sent what is no frame, broke a bound, or was too slow."""

    def __init__(self, how: str, message: str) -> None:
        super().__init__(message)
        self.how = how  # "closed", "garbage", "oversize", "timeout"


def send_question(
    sock: socket.socket,
    header: dict[str, Any],
    fds: tuple[int, ...] = (),
    deadline: float | None = None,
) -> None:
    """Send one frame. The descriptors stay open here; the caller closes its own.

    ``deadline``, here and below, is a ``time.monotonic`` moment.
    """
    frame = _frame(header)
    if len(fds) > MAX_DESCRIPTORS:
        raise WireBroken("oversize", f"a frame with {len(fds)} descriptors")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sock.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
        sent = sock.sendmsg([frame], rights)
        if sent < len(frame):  # an empty `send` fails when the other side has shut down since
            sock.sendall(frame[sent:])
    except TimeoutError as error:
        raise WireBroken("timeout", "it does not read what it is asked") from error
    except OSError as error:
        raise WireBroken("closed", f"cannot send: {error}") from error


def receive_question(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The worker's side of ``send_question``: the header and the descriptors, now its own."""
    fds: list[int] = []
    (size,) = _LENGTH.unpack(_receive(sock, _LENGTH.size, fds))
    return _header(_receive(sock, size, fds)), fds


def send_answer(pipe: int, header: dict[str, Any]) -> None:
    """The worker's side of ``receive_answer``."""
    frame = memoryview(_frame(header))
    while frame:
        frame = frame[os.write(pipe, frame) :]


def receive_answer(
    pipe: int, deadline: float, meanwhile: Callable[[], None] | None = None
) -> dict[str, Any]:
    """Read one frame from a non-blocking pipe; never more, and never past the deadline.

    ``meanwhile`` is called every ``LOOK_S`` seconds until it is there.
    """
    waiting = _Waiting(pipe, deadline, meanwhile)
    (size,) = _LENGTH.unpack(waiting.read(_LENGTH.size))
    if size > MAX_HEADER_BYTES:
        raise WireBroken("oversize", f"a frame claims {size} bytes")
    return _header(waiting.read(size))


def _frame(header: dict[str, Any]) -> bytes:
    body = json.dumps(header).encode()
    if len(body) > MAX_HEADER_BYTES:
        raise WireBroken("oversize", f"a frame of {len(body)} bytes")
    return _LENGTH.pack(len(body)) + body


def _header(body: bytes) -> dict[str, Any]:
    try:
        header = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise WireBroken("garbage", f"not JSON: {error}") from error
    if not isinstance(header, dict):
        raise WireBroken("garbage", "a frame holds no JSON object")
    return header


class _Waiting:
    """For the bytes of one answer."""

    def __init__(self, pipe: int, deadline: float, meanwhile: Callable[[], None] | None) -> None:
        self._pipe, self._deadline, self._meanwhile = pipe, deadline, meanwhile
        self._look_at = time.monotonic() + LOOK_S if meanwhile else deadline
        self._readable = select.poll()  # `select` refuses descriptors beyond 1024
        self._readable.register(pipe, select.POLLIN)

    def read(self, size: int) -> bytes:
        """Exactly so many."""
        parts: list[bytes] = []
        while size:
            if not self._is_readable():
                continue
            try:
                data = os.read(self._pipe, size)
            except BlockingIOError:
                continue  # who can reopen the pipe may have read it first
            if not data:
                raise WireBroken("closed", "the other side closed the pipe")
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def _is_readable(self) -> bool:
        now = time.monotonic()
        if now >= self._deadline:
            raise WireBroken("timeout", "silence past the deadline")
        if self._meanwhile is not None and now >= self._look_at:
            self._meanwhile()
            self._look_at = now + LOOK_S
        left = min(self._look_at, self._deadline) - now
        return bool(self._readable.poll(max(left, 0) * 1e3))


def _receive(sock: socket.socket, size: int, fds: list[int]) -> bytes:
    space = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
    parts: list[bytes] = []
    while size:
        data, ancillary, _, _ = sock.recvmsg(size, space)
        for level, kind, rights in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(rights[: len(rights) - len(rights) % received.itemsize])
                fds.extend(received)
        if not data:
            raise WireBroken("closed", "the other side closed the socket")
        parts.append(data)
        size -= len(data)
    return b"".join(parts)
