"""What the kernel says about a worker's processes, read from outside through /proc."""

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_STOPPED = frozenset("TtZX")

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
                lines.append(_stat(entry / "stat"))
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
        with contextlib.suppress(OSError):
            for task in (_PROC / str(pid) / "task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def thread_states(pid: int) -> dict[int, str]:
    """State letter of each thread of ``pid``; empty when the process is gone."""
    states = {}
    with contextlib.suppress(OSError):
        for task in (_PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                states[int(task.name)] = _stat(task / "stat").state
    return states


def hold(pids: Iterable[int], patience_s: float = 2.0) -> bool:
    """SIGSTOP, and wait until every thread is seen stopped; False when one would not stop."""
    waiting = set(pids)
    for pid in waiting:
        _signal(pid, signal.SIGSTOP)
    deadline = time.monotonic() + patience_s
    while waiting:
        waiting = {pid for pid in waiting if not _STOPPED.issuperset(thread_states(pid).values())}
        if time.monotonic() > deadline:
            return not waiting
    return True


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


def _stat(path: Path) -> ProcessLine:
    text = path.read_text(errors="replace")
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    return ProcessLine(int(pid), int(fields[1]), fields[0], name)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
