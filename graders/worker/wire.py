"""The wire between referee and worker: frames over one inherited Unix stream socket.

Standard library only, no imports from this product: the worker runs an interpreter without our
packages and carries a copy of this file beside it.

A frame is a 4-byte big-endian length, then that many bytes of JSON (an object, at most
``MAX_HEADER_BYTES``); file descriptors travel beside it (SCM_RIGHTS, at most ``MAX_DESCRIPTORS``).
Arrays never travel in frames: they lie in memfds. A *leaf* describes one array in a memfd::

    {"name": "x", "dtype": "float32", "shape": [2, 3], "strides": [12, 4], "offset": 0}

``strides`` and ``offset`` are bytes; a leaf of an output has no ``strides``, and may say ``type``
and ``aliases``. NumPy has no bfloat16: it travels as its bits, ``uint16``.

Referee to worker                                         worker to referee
``build``  folder, file, names, absent, outputs, device   ``ok``
``setup``  params                                         ``ok``
``call``   n, inputs (leaves), room; fds: [input, output] ``ok``  n, outputs (leaves)
           or none: the memory of the last call again

The worker's first frame is ``{"ok": "ready"}``. A ``call`` may say ``dirty`` (a byte to leave on
the heap before it), ``scribble`` (overwrite the returned objects after they were copied) and
``extras`` (copy leaves that are not declared too): the probes' part that has to run in there.

Any answer may instead be ``{"error": <kind>, "bases": [...], "text": ..., "where": [...]}``, kind
one of ``import, setup, call, output``. Whatever the worker says is a claim; the referee trusts
lengths, times and bytes that it has read itself, and nothing else.
"""

import array
import contextlib
import json
import socket
import struct
import threading
import time
from typing import Any

MAX_HEADER_BYTES = 1 << 20
MAX_DESCRIPTORS = 4
CLOSING_S = 0.2
_LENGTH = struct.Struct(">I")

DTYPES = frozenset(
    {
        *("bool", "float16", "float32", "float64"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    }
)
"""Names of the dtypes that an array in a memfd can have."""


class WireBroken(Exception):
    """The other side closed the socket, sent what is no frame, broke a bound, or was too slow."""

    def __init__(self, how: str, message: str) -> None:
        super().__init__(message)
        self.how = how  # "closed", "garbage", "oversize", "timeout"


def send_frame(sock: socket.socket, header: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send one frame. The descriptors stay open here; the caller closes its own."""
    body = json.dumps(header).encode()
    if len(body) > MAX_HEADER_BYTES or len(fds) > MAX_DESCRIPTORS:
        raise WireBroken("oversize", f"frame of {len(body)} bytes, {len(fds)} descriptors")
    frame = _LENGTH.pack(len(body)) + body
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sent = sock.sendmsg([frame], rights)
        sock.sendall(frame[sent:])
    except OSError as error:
        raise WireBroken("closed", f"cannot send: {error}") from error


def receive_frame(
    sock: socket.socket, deadline: float | None = None
) -> tuple[dict[str, Any], list[int]]:
    """Receive one frame and its descriptors; ``deadline`` is a ``time.monotonic`` moment."""
    fds: list[int] = []
    try:
        (size,) = _LENGTH.unpack(_read(sock, _LENGTH.size, deadline, fds))
        if size > MAX_HEADER_BYTES:
            raise WireBroken("oversize", f"a frame claims {size} bytes")
        header = json.loads(_read(sock, size, deadline, fds).decode())
    except (ValueError, RecursionError) as error:
        discard(fds)
        raise WireBroken("garbage", f"not JSON: {error}") from error
    except BaseException:
        discard(fds)
        raise
    if not isinstance(header, dict):
        discard(fds)
        raise WireBroken("garbage", "a frame holds no JSON object")
    return header, fds


def _read(sock: socket.socket, size: int, deadline: float | None, fds: list[int]) -> bytes:
    parts, missing = [], size
    while missing:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise WireBroken("timeout", "silence past the deadline")
            sock.settimeout(left)
        else:
            sock.settimeout(None)
        try:
            data, ancillary, _, _ = sock.recvmsg(
                missing, socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
            )
        except TimeoutError as error:
            raise WireBroken("timeout", "silence past the deadline") from error
        except OSError as error:
            raise WireBroken("closed", f"cannot receive: {error}") from error
        _collect(ancillary, fds)
        if not data:
            raise WireBroken("closed", "the other side closed the socket")
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def _collect(ancillary: list[Any], fds: list[int]) -> None:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            received = array.array("i")
            received.frombytes(data[: len(data) - len(data) % received.itemsize])
            fds.extend(received)
            if len(fds) > MAX_DESCRIPTORS:
                raise WireBroken("oversize", f"a frame brings {len(fds)} descriptors")


def discard(fds: list[int]) -> None:
    """Close descriptors that nobody asked for, on the side: one that lingers must not hold us."""
    if fds:
        closing = threading.Thread(target=_close_all, args=(list(fds),), daemon=True)
        closing.start()
        closing.join(timeout=CLOSING_S)


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            socket.close(fd)
