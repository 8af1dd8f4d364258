"""The supervisor inside a sandbox: runs commands for the outside, one at a time.

Standard library only, run as ``python -I -S inside.py fd <n>`` or ``connect <path>``, then perhaps
``filter:<hex>``, a seccomp filter for itself and all commands, then a ``port:path`` for each door
(`doors.py`, which lies beside it). It carries nothing of the product,
holds the only end of a stream socket (the *wire*), never passes it on, and ends when the outside
closes it. As PID 1 of a namespace it cannot be killed from inside, takes the namespace with it, and
is closed to ptrace, so that a command of the same uid can neither stop it nor answer in its name.
Without a namespace it is a subreaper and kills what descends from it.

Frames: a 4-byte big-endian length, then a byte for the kind, then the payload.

in   ``x``  output limit, number of words, number of variables (u32 each), whether to send output
            as it comes (u8), then, each with a u32 length: working folder, words, ``NAME=value``;
            answered by one ``r``
in   ``k``  kill everything inside; a running command's ``r`` follows
in   ``f``  stop everything inside, and let commands wait; ``t``: go on; answered by one ``d``
out  ``h``  ready; the doors' ports (u16 each)
out  ``d``  done: what was running has stopped, or goes on
out  ``o``  a piece of output
out  ``r``  exit code (i32), dropped bytes (u64), length of the head (u32), head, tail
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import struct
import sys
import time

PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
PR_SET_SECCOMP, SECCOMP_MODE_FILTER, FILTER = 22, 2, "filter:"
CHUNK = 1 << 16
SILENCE_MS, DRAIN_S = 20, 0.1  # how long the output of survivors is waited for
MAX_LEFT_OPEN = 64
MOST_PIDS = 512  # where no limit of this user's processes says otherwise
HELLO, RESULT, KILL, FREEZE, THAW, DONE, OUTPUT = b"h", b"r", b"k", b"f", b"t", b"d", b"o"
STOPPED = "TtZXx"  # states of a process that does not run (proc_pid_stat(5))
MOST_LOOKS = 500


class Output:
    """A command's output: both ends kept, the middle counted."""

    def __init__(self, limit: int) -> None:
        self.half = max(1, limit // 2)
        self.head, self.tail, self.dropped = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        """Take more output."""
        room = self.half - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        if len(self.tail) > self.half + CHUNK:
            self.trim()

    def trim(self) -> None:
        """Cut the tail to its size."""
        excess = max(0, len(self.tail) - self.half)
        del self.tail[:excess]
        self.dropped += excess


class Command:
    """The running command. ``pid`` is None when it could not be started."""

    def __init__(
        self, limit: int, streams: bool, cwd: bytes, words: list[bytes], env: dict[bytes, bytes]
    ) -> None:
        self.output, self.streams = Output(limit), streams
        self.pid: int | None = None
        self.status: int | None = None
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        self.pipe: int | None = reader
        try:
            self.pid = spawn(words, env, cwd, writer)
            prefer_as_victim(self.pid)
        except (OSError, ValueError) as error:
            self.output.add(explain(error))
            self.status = 127 if isinstance(error, FileNotFoundError) else 126
        finally:
            os.close(writer)


class Supervisor:
    """Serves one wire."""

    def __init__(self, wire: int, ports: list[int]) -> None:
        self.wire, self.wake, self.ports = wire, wake_on_child(), ports
        self.is_init = os.getpid() == 1
        self.command: Command | None = None
        self.frozen = False
        self.waiting: bytes | None = None  # a command that came meanwhile
        self.left_open: list[int] = []  # output pipes that survivors of ended commands hold
        self.poller = select.poll()
        for fd in (self.wire, self.wake):
            self.poller.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Answer until the outside is gone."""
        try:
            self.send(HELLO + struct.pack(f">{len(self.ports)}H", *self.ports))
            while True:
                self.step()
        except ConnectionError:
            if not self.is_init:
                self.kill_all()

    def step(self) -> None:
        """Wait until something happens, and deal with it."""
        for fd, _ in self.poller.poll():
            if fd == self.wire:
                self.obey()
            elif fd == self.wake:
                os.read(fd, CHUNK)
            elif fd in self.left_open:
                if read_some(fd) == b"":
                    self.left_open.remove(fd)
                    self.forget(fd)
            elif self.command is not None:
                self.read_output(self.command)
        self.reap()
        if self.command is not None and self.command.status is not None:
            command, self.command = self.command, None
            self.answer(command, command.status or 0)

    def obey(self) -> None:
        """Do what one frame asks."""
        (size,) = struct.unpack(">I", self.receive(4))
        frame = self.receive(size)
        if frame[:1] == KILL:
            self.kill_all()
            return
        if frame[:1] in (FREEZE, THAW):
            self.stand_still() if frame[:1] == FREEZE else self.go_on()
            self.send(DONE)
            return
        if self.frozen:
            self.waiting = frame
        else:
            self.start(frame)

    def start(self, frame: bytes) -> None:
        """Start the command of an ``x`` frame."""
        if self.is_init and crowded():
            self.kill_all()  # left by a fork bomb: the next command could not even fork
        self.command = Command(*parse(frame[1:]))
        if self.command.pipe is not None:
            self.poller.register(self.command.pipe, select.POLLIN)

    def read_output(self, command: Command) -> None:
        """Take what is in the pipe; close it at its end."""
        if command.pipe is None:
            return
        data = read_some(command.pipe)
        if data:
            command.output.add(data)
            if command.streams:
                self.send(OUTPUT + data)
        elif data is not None:
            self.forget(command.pipe)
            command.pipe = None

    def answer(self, command: Command, status: int) -> None:
        """Send the result of an ended command; its survivors may go on and keep writing."""
        deadline, waiter = time.monotonic() + DRAIN_S, select.poll()
        if command.pipe is not None:
            waiter.register(command.pipe, select.POLLIN)
        while command.pipe is not None and time.monotonic() < deadline and waiter.poll(SILENCE_MS):
            self.read_output(command)
        if command.pipe is not None:
            self.left_open.append(command.pipe)
        while len(self.left_open) > MAX_LEFT_OPEN:
            self.forget(self.left_open.pop(0))
        output = command.output
        output.trim()
        header = struct.pack(">iQI", status, output.dropped, len(output.head))
        self.send(RESULT + header + output.head + output.tail)

    def forget(self, fd: int) -> None:
        """Close an output pipe."""
        self.poller.unregister(fd)
        os.close(fd)

    def reap(self) -> bool:
        """Collect the dead; False when no child is left."""
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if self.command is not None and found[0] == self.command.pid:
                    code = os.waitstatus_to_exitcode(found[1])
                    self.command.status = code if code >= 0 else 128 - code
        except ChildProcessError:
            return False
        return True

    def kill_all(self) -> None:
        """Kill until nothing is left: whatever loses its parent becomes our child."""
        while self.reap():
            self.signal_all(signal.SIGKILL)
            time.sleep(0.002)

    def stand_still(self) -> None:
        """Stop until nothing runs: what was forking meanwhile is stopped in its turn."""
        self.frozen = True
        for _ in range(MOST_LOOKS):
            self.signal_all(signal.SIGSTOP)
            if not running(os.getpid()):
                return
            time.sleep(0.002)

    def go_on(self) -> None:
        """Let run what was stopped, and start what waits."""
        self.frozen = False
        self.signal_all(signal.SIGCONT)
        if self.waiting is not None:
            frame, self.waiting = self.waiting, None
            self.start(frame)

    def signal_all(self, number: int) -> None:
        """To everything inside but ourselves."""
        for pid in [-1] if self.is_init else descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def receive(self, size: int) -> bytes:
        """Exactly ``size`` bytes."""
        data = bytearray()
        while len(data) < size:
            part = os.read(self.wire, size - len(data))
            if not part:
                raise ConnectionError("the outside is gone")
            data += part
        return bytes(data)

    def send(self, body: bytes) -> None:
        """One frame."""
        data = memoryview(struct.pack(">I", len(body)) + body)
        while data:
            data = data[os.write(self.wire, data) :]


def crowded() -> bool:
    """True when survivors take more than half of the processes that may be."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    most = MOST_PIDS if limit == resource.RLIM_INFINITY else min(limit, MOST_PIDS)
    names = os.listdir("/proc")  # noqa: PTH208 - pathlib would double the start-up time in here
    return sum(map(str.isdigit, names)) > most // 2


def parse(payload: bytes) -> tuple[int, bool, bytes, list[bytes], dict[bytes, bytes]]:
    """Limit, whether to stream, working folder, words and variables of an ``x`` frame."""
    limit, n_words, n_variables, streams = struct.unpack_from(">IIIB", payload)
    at, strings = 13, []
    for _ in range(1 + n_words + n_variables):
        (size,) = struct.unpack_from(">I", payload, at)
        strings.append(payload[at + 4 : at + 4 + size])
        at += 4 + size
    variables = dict(item.split(b"=", 1) for item in strings[1 + n_words :])
    return limit, bool(streams), strings[0], strings[1 : 1 + n_words], variables


def spawn(words: list[bytes], env: dict[bytes, bytes], cwd: bytes, output: int) -> int:
    """Start a command in a session of its own, stdin closed, both outputs in one pipe."""
    os.chdir(cwd)
    os.environb[b"PATH"] = env.get(b"PATH", b"/usr/bin:/bin")  # posix_spawnp searches ours
    null = os.open("/dev/null", os.O_RDONLY)
    streams = enumerate((null, output, output))
    try:
        return os.posix_spawnp(
            words[0],
            words,
            env,
            file_actions=[(os.POSIX_SPAWN_DUP2, source, fd) for fd, source in streams],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them
        )
    finally:
        os.close(null)
        os.chdir("/")


def prefer_as_victim(pid: int) -> None:
    """When memory runs out, a command goes before its supervisor; children inherit it."""
    with contextlib.suppress(OSError):
        fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY)
        os.write(fd, b"500")
        os.close(fd)


def explain(error: Exception) -> bytes:
    """Why a command did not start, as a shell would put it."""
    if isinstance(error, OSError) and error.filename is not None:
        return os.fsencode(error.filename) + os.fsencode(f": {error.strerror}\n")
    return os.fsencode(f"the command cannot be run: {error}\n")


def read_some(fd: int) -> bytes | None:
    """Bytes, ``b""`` at the end, None when there is nothing yet."""
    try:
        return os.read(fd, CHUNK)
    except BlockingIOError:
        return None


def descendants(pid: int) -> list[int]:
    """All processes below ``pid``."""
    children: dict[int, list[int]] = {}
    for number, (_, parent) in processes().items():
        children.setdefault(parent, []).append(number)
    found = list(children.get(pid, ()))
    for child in found:
        found += children.get(child, ())
    return found


def running(pid: int) -> bool:
    """True when anything below ``pid`` is not stopped or dead."""
    seen = processes()
    return any(seen[child][0] not in STOPPED for child in descendants(pid) if child in seen)


def processes() -> dict[int, tuple[str, int]]:
    """State and parent of every process that we see, by its number."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs start-up time
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                found[int(name)] = state.decode(), int(parent)
    return found


def wake_on_child() -> int:
    """A descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def connect(path: str) -> int:
    """A wire to the socket at ``path``."""
    import socket  # noqa: PLC0415 - half the start-up time, needed by one kind only

    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    return sock.detach()


def main() -> None:
    """Serve the wire named by the arguments."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which PID 1 ignores; Python's own would end it
    how, where = sys.argv[1:3]
    wire = int(where) if how == "fd" else connect(where)
    os.set_inheritable(wire, False)
    prctl = ctypes.CDLL(None).prctl
    if os.getpid() == 1:
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    else:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.umask(0o022)
    doors = sys.argv[3:]
    if doors and doors[0].startswith(FILTER):
        deny_calls(bytes.fromhex(doors.pop(0)[len(FILTER) :]))
    Supervisor(wire, open_doors(doors)).serve()


def deny_calls(program: bytes) -> None:
    """Put this process and its children under a filter of system calls (seccomp(2)) for good."""
    held = ctypes.create_string_buffer(program, len(program))
    filters = struct.pack("H6xQ", len(program) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filters, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the filter of system calls is not taken")


def open_doors(wanted: list[str]) -> list[int]:
    """Open ``port:path`` doors; their ports. Nothing is imported for none: starting is quick."""
    if not wanted:
        return []
    sys.path.append(os.path.dirname(__file__))  # noqa: PTH120
    from doors import Doors  # type: ignore[import-not-found]  # noqa: PLC0415

    pairs = [item.split(":", 1) for item in wanted]
    ports: list[int] = Doors([(int(port), path) for port, path in pairs]).ports
    return ports


if __name__ == "__main__":
    main()
