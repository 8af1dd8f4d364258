"""The way from a sandbox to allow-listed hosts: HTTP's CONNECT, on a Unix socket of its own.

What passes is encrypted between the session and the host; who was reached, and how many bytes went
each way, is told to the session's terms. A name that resolves to an address of this machine or of a
private network is refused: only an address that is itself on the list may be one.
"""

import base64
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.gateway.admission import Admission
from orchestrator.gateway.terms import Tunnelled
from sandboxes.scratch import Scratch

HTTPS = 443
MOST_CONNECTIONS = 256
_HEAD_BYTES, _CHUNK = 8192, 1 << 16
_HEAD_S, _CONNECT_S = 10.0, 20.0


class BadHost(UserError):
    """Not a host that can be allowed."""


def allowed_hosts(names: Sequence[str]) -> frozenset[tuple[str, int]]:
    """``host`` or ``host:port`` each; without a port it is 443. Raises BadHost."""
    found = set()
    for name in names:
        host, _, port = name.strip().lower().partition(":")
        is_host = host and set(host) <= _HOST_CHARACTERS
        if not is_host or not (port or "1").isdigit():
            raise BadHost(f"`{name}` is no host to allow; say for example `pypi.org:443`")
        found.add((host, int(port or HTTPS)))
    return frozenset(found)


_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-")


class Tunnel:
    """A context manager; one a sweep. ``admission_of`` knows whose a token is."""

    def __init__(
        self,
        allowed: frozenset[tuple[str, int]],
        admission_of: Callable[[str], Admission | None],
    ) -> None:
        self.allowed, self._admission_of = allowed, admission_of
        self._room = threading.Semaphore(MOST_CONNECTIONS)

    @property
    def path(self) -> Path:
        """Where it listens."""
        return self._scratch.path / "tunnel.sock"

    def __enter__(self) -> "Tunnel":
        self._scratch = Scratch("tunnel")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self.path.chmod(0o666)  # as the gateway's
        self._listener.listen(64)
        threading.Thread(target=self._serve, name="tunnel", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._scratch.close()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            if not self._room.acquire(blocking=False):
                caller.close()
                continue
            threading.Thread(target=self._answer, args=(caller,), daemon=True).start()

    def _answer(self, caller: socket.socket) -> None:
        try:
            with caller, contextlib.suppress(OSError, ValueError):
                self._connect(caller)
        finally:
            self._room.release()

    def _connect(self, caller: socket.socket) -> None:
        caller.settimeout(_HEAD_S)
        words, headers = _head(caller)
        admission = self._admission_of(_token(headers.get("proxy-authorization", "")))
        if admission is None or len(words) != 3 or words[0] != "CONNECT":
            caller.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return
        host, _, port = words[1].lower().rpartition(":")
        told = admission.terms.on_tunnel
        if (host, int(port)) not in self.allowed:
            told(Tunnelled(host, int(port), refused="not on the list"))
            caller.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return
        try:
            there = socket.create_connection(_address(host, int(port)), _CONNECT_S)
        except OSError as error:
            told(Tunnelled(host, int(port), refused=str(error)))
            caller.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return
        with there:
            caller.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            sent, received = _both_ways(caller, there)
        told(Tunnelled(host, int(port), sent, received))


def _head(caller: socket.socket) -> tuple[list[str], dict[str, str]]:
    """The request line's words and the headers, read to their end and no byte further."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        part = caller.recv(1)
        if not part or len(data) > _HEAD_BYTES:
            raise ValueError("no request")
        data += part
    first, *rest = data.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in rest)
    return first.split(), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _token(said: str) -> str:
    """The password of basic credentials."""
    with contextlib.suppress(ValueError):
        return base64.b64decode(said.partition(" ")[2]).decode().rpartition(":")[2]
    return ""


def _address(host: str, port: int) -> tuple[str, int]:
    """Where a host is. Raises OSError for a name that leads to a network of ours."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return host, port
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for *_, place in found:
        if ipaddress.ip_address(place[0]).is_global:
            return str(place[0]), port
    raise OSError(f"{host} is an address of a private network")


def _both_ways(caller: socket.socket, there: socket.socket) -> tuple[int, int]:
    """Pass bytes until both have said all; how many went out and came in."""
    counts = {"out": 0, "in": 0}

    def pump(source: socket.socket, sink: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                counts[way] += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    for end in (caller, there):
        end.settimeout(None)
    back = threading.Thread(target=pump, args=(there, caller, "in"), daemon=True)
    back.start()
    pump(caller, there, "out")
    back.join()
    return counts["out"], counts["in"]
