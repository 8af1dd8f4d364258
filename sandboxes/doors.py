"""Doors of a sandbox: TCP ports on its loopback that lead to Unix sockets of the host.

One file, standard library only; it runs in threads of the supervisor, the one process that commands
cannot kill. The ports are taken before the first command runs, so no command can take them first.
"""

import contextlib
import socket
import threading
import time

CHUNK = 1 << 16
MOST = 64  # connections at once, of all doors: two threads each, of the processes that may be
PAUSE_S = 0.05  # where no descriptor or thread is left
BACKLOG = 64


class Doors:
    """Listens for as long as the process lives."""

    def __init__(self, wanted: list[tuple[int, str]]) -> None:
        """``wanted``: port (0: any that is free) and path of the socket."""
        self._room = threading.Semaphore(MOST)
        listeners = [(listening(port), path) for port, path in wanted]
        self.ports = [listener.getsockname()[1] for listener, _ in listeners]
        for listener, path in listeners:
            begin(self._serve, listener, path)

    def _serve(self, listener: socket.socket, path: str) -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:  # a caller that has hung up already, or no descriptor left
                time.sleep(PAUSE_S)
                continue
            if not self._room.acquire(blocking=False):
                caller.close()
                continue
            try:
                begin(self._join, caller, path)
            except RuntimeError:  # commands have all the processes that may be: the door stays
                caller.close()
                self._room.release()
                time.sleep(PAUSE_S)

    def _join(self, caller: socket.socket, path: str) -> None:
        """Pass bytes both ways until both ends have said all."""
        try:
            with caller, socket.socket(socket.AF_UNIX) as host:
                host.connect(path)
                answers = begin(pump, host, caller)
                pump(caller, host)
                answers.join()
        except (OSError, RuntimeError):  # nobody behind the door, or no second thread to be had
            return
        finally:
            self._room.release()


def listening(port: int) -> socket.socket:
    """A listener on the loopback."""
    listener = socket.socket(socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    return listener


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Pass on until the source ends; a half-closed stream stays open the other way."""
    try:
        while data := source.recv(CHUNK):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:  # one end is gone: so is the conversation
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def begin(work, *arguments) -> threading.Thread:  # type: ignore[no-untyped-def]
    """A thread that does not keep the process alive."""
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread
