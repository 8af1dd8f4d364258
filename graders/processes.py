"""What the kernel says about a worker's processes, read from outside through /proc."""

import contextlib
import os
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
    try:
        text = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


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
