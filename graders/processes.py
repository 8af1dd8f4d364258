"""What the kernel says about a worker's processes, read from outside through /proc."""

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_STOPPED = frozenset("TtZX")
_TICKS = os.sysconf("SC_CLK_TCK")

OUR_CORES = frozenset(os.sched_getaffinity(0))
"""Cores that this process was given; threads that pin themselves later do not change it."""


@dataclass(frozen=True)
class ProcessLine:
    """One line of the process table."""

    pid: int
    parent: int
    state: str
    name: str


def process_table() -> list[ProcessLine]:
    """All processes that this process can see."""
    lines = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                lines.append(_line(_read(f"{entry}/stat")))
    return lines


def tree(root: int) -> list[ProcessLine]:
    """``root`` and everything below it. Orphans inside a pid namespace stay below its init."""
    children: dict[int, list[ProcessLine]] = {}
    found = []
    for line in process_table():
        children.setdefault(line.parent, []).append(line)
        if line.pid == root:
            found.append(line)
    for line in found:  # grows while it is walked: breadth first
        found.extend(children.get(line.pid, []))
    return found


def below(root: int) -> list[int]:
    """``root`` and all below it; far cheaper than `tree` where the kernel lists children."""
    if not (_PROC / str(root) / "task" / str(root) / "children").exists():
        return [line.pid for line in tree(root)]
    found = [root]
    for pid in found:  # grows while it is walked
        for task in _tasks(pid):
            with contextlib.suppress(OSError):
                found += map(int, _read(f"{task}/children").split())
    return found


def thread_states(pid: int) -> dict[int, str]:
    """State letter of each thread of ``pid``; empty when the process is gone."""
    states = {}
    for task in _tasks(pid):
        with contextlib.suppress(OSError, ValueError):
            line = _line(_read(f"{task}/stat"))
            states[line.pid] = line.state
    return states


@dataclass(frozen=True)
class Held:
    """A closed set of stopped processes: no process of it is left that could start another."""

    pids: frozenset[int]
    since_ns: int  # `time.perf_counter_ns` when the last of them was seen stopped


def hold(find: Callable[[], Iterable[int]], patience_s: float = 2.0) -> Held | None:
    """SIGSTOP all that ``find`` lists; None when they cannot all be stopped in time.

    Done when a listing made while everybody known is stopped names nobody new: a process forked
    between a listing and its parent's stop shows in the next one.
    """
    deadline = time.monotonic() + patience_s
    known: set[int] = set()
    since_ns: int | None = None
    while time.monotonic() < deadline:
        new = set(find()) - known
        known |= new
        if since_ns is not None and not new and not _running(known):
            return Held(frozenset(known), since_ns)
        since_ns = _stopped_at(known, deadline)
    return None


def _stopped_at(pids: set[int], deadline: float) -> int | None:
    """Stop them; the moment when all threads of all were seen stopped, None if not in time."""
    waiting = pids
    while time.monotonic() < deadline:
        for pid in waiting:
            _signal(pid, signal.SIGSTOP)
        while (left := _running(waiting)) == waiting and time.monotonic() < deadline:
            continue
        waiting = left or _running(pids)  # one may have been let go by another meanwhile
        if not waiting:
            return time.perf_counter_ns()
    return None


def _running(pids: Iterable[int]) -> set[int]:
    return {pid for pid in pids if not _STOPPED.issuperset(thread_states(pid).values())}


def resume(pids: Iterable[int]) -> None:
    """SIGCONT."""
    for pid in pids:
        _signal(pid, signal.SIGCONT)


def marked(mark: str) -> list[int]:
    """Processes whose environment holds ``mark``, wherever they have hidden in the tree."""
    found = []
    for entry in _PROC.iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def kill(pids: Iterable[int]) -> None:
    """SIGKILL."""
    for pid in pids:
        _signal(pid, signal.SIGKILL)


def resident_bytes(pid: int) -> int:
    """Private resident memory (RssAnon): shared mappings of inputs and outputs do not count."""
    return _status_bytes(pid, "RssAnon:")


def _status_bytes(pid: int, field: str) -> int:
    """A size of `/proc/PID/status` (proc_pid_status(5)); 0 when the process is gone."""
    with contextlib.suppress(OSError):
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return 0


def shared_bytes(pids: Iterable[int]) -> int:
    """Memory in memfds, tmpfs and the like: what one process maps, or what all hold open as memfds.

    The larger of the two, because they overlap. Mapped once by each of many processes counts once;
    what is neither mapped nor open (in a socket's queue, in a System V segment) is not seen.
    """
    mapped, held = 0, dict[tuple[int, int], int]()
    for pid in pids:
        mapped = max(mapped, _status_bytes(pid, "RssShmem:"))
        held |= _memfds(pid)
    return max(mapped, sum(held.values()))


def _memfds(pid: int) -> dict[tuple[int, int], int]:
    """Bytes that each open memfd of a process has in memory."""
    found = {}
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if os.readlink(entry.path).startswith("/memfd:"):  # noqa: PTH115 - there are many
                    info = entry.stat()
                    found[info.st_dev, info.st_ino] = info.st_blocks * 512
    return found


def cores_for(device: str, core: int) -> frozenset[int]:
    """Cores of a worker: ``core`` (-1: any one) on a CPU, with a GPU all that share nothing with
    the first of ours, on which the referee polls.

    One core on a CPU, timed or not: how many there are must not tell a check from a timing. With a
    GPU the figure is the device's, and CUDA has threads of its own.
    """
    if device != "cpu":
        first, *others = sorted(OUR_CORES)
        apart = frozenset(others) - _siblings(first)
        return apart or frozenset(others) or OUR_CORES
    return frozenset({core if core >= 0 else secrets.choice(sorted(OUR_CORES))})


_ROOM = 8  # cores from which two may be left idle on a guess


def _siblings(core: int) -> frozenset[int]:
    """Cores that may be threads of one physical core with ``core``.

    Virtual machines often hide which are: then its neighbour and its half-way partner, the two ways
    in which threads are numbered, where there are enough others.
    """
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    found = {core}
    with contextlib.suppress(OSError, ValueError):
        for part in path.read_text().strip().split(","):
            low, _, high = part.partition("-")
            found |= set(range(int(low), int(high or low) + 1))
    if found == {core} and len(OUR_CORES) >= _ROOM:
        found |= {core ^ 1, core + len(OUR_CORES) // 2}
    return frozenset(found)


def allowed_cores(pid: int) -> set[int]:
    """Cores that any thread of ``pid`` may run on."""
    cores: set[int] = set()
    for thread in thread_states(pid):
        with contextlib.suppress(OSError):
            cores |= os.sched_getaffinity(thread)
    return cores


def pin(pids: Iterable[int], cores: Collection[int]) -> None:
    """Let all threads of these processes run on these cores; what they start inherits it."""
    for pid in pids:
        for thread in thread_states(pid):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(thread, cores)


@dataclass(frozen=True)
class Spent:
    """What the kernel has counted for some processes, all their threads together, in seconds."""

    cpu_s: float = 0.0  # on a core; threads and awaited children that have ended included
    waited_s: float = 0.0  # able to run, but with no core to run on; threads that live now


def spent(pids: Iterable[int]) -> Spent:
    """Read it: `/proc/PID/stat` (proc_pid_stat(5): ticks) and `schedstat` (nanoseconds)."""
    cpu = waited = 0.0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
            ticks = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
            ran_ns = wait_ns = 0
            for task in _tasks(pid):
                with contextlib.suppress(OSError, ValueError):
                    ran, wait, _ = _read(f"{task}/schedstat").split()
                    ran_ns, wait_ns = ran_ns + int(ran), wait_ns + int(wait)
            cpu += max(ticks / _TICKS, ran_ns / 1e9)
            waited += wait_ns / 1e9
    return Spent(cpu, waited)


def core_busy_s(core: int) -> float:
    """Seconds that a core has spent on anything since boot, from `/proc/stat` (proc_stat(5))."""
    for line in (_PROC / "stat").read_text().splitlines():
        if line.startswith(f"cpu{core} "):
            user, nice, system, _idle, _iowait, irq, soft, steal, *_ = map(int, line.split()[1:])
            return (user + nice + system + irq + soft + steal) / _TICKS
    return 0.0


def _tasks(pid: int) -> list[str]:
    """Folders of the threads of a process; none when it is gone."""
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/task") as entries:
        return [entry.path for entry in entries]
    return []


def _read(path: str) -> str:
    """A file of `/proc`, without the layers of `open`: many are read between two calls."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while part := os.read(fd, 1 << 16):
            data += part
        return data.decode("utf-8", "replace")
    finally:
        os.close(fd)


def _line(text: str) -> ProcessLine:
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    return ProcessLine(int(pid), int(fields[1]), fields[0], name)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
