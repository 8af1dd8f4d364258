"""Limits of a whole sandbox by cgroup v2, where we may make groups; elsewhere rlimits must do.

A group with limits needs the memory and pids controllers of its parent. Ours go below the cgroup
that we are in where that hands out controllers, else below the root of the hierarchy. A group that
only counts needs no controller: the kernel keeps the CPU time of each.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandboxes.base import Limits

_PREFIX = "kernel-orchestrator-"
_CONTROLLERS = "+memory +pids +cpu"
_PERIOD_US = 100_000
_FRESH_S = 60.0
"""A group younger than this may be about to get its first process."""


@dataclass(frozen=True)
class Cgroup:
    """One sandbox's group."""

    path: Path
    is_capped: bool = True  # False: it only counts

    @property
    def procs(self) -> Path:
        """The file in which a process writes itself to join."""
        return self.path / "cgroup.procs"

    def cpu_s(self) -> float:
        """CPU time of all that was ever in it, in seconds (`usage_usec` of cpu.stat).

        It holds what no `/proc/PID/stat` does: children of a parent that ignores SIGCHLD.
        """
        with contextlib.suppress(OSError):
            for line in (self.path / "cpu.stat").read_text().splitlines():
                if line.startswith("usage_usec "):
                    return int(line.split()[1]) / 1e6
        return 0.0

    def oom_kills(self) -> int:
        """Processes that the kernel has killed for the group's memory (memory.events)."""
        with contextlib.suppress(OSError):
            for line in (self.path / "memory.events").read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def die_as_one(self) -> None:
        """Let the kernel, out of the group's memory, kill all of it instead of one process."""
        with contextlib.suppress(OSError):
            (self.path / "memory.oom.group").write_text("1")

    def remove(self) -> None:
        """Kill what is in it and remove it."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + 5
        while self.path.exists() and time.monotonic() < deadline:
            try:
                self.path.rmdir()
            except OSError:
                time.sleep(0.005)  # the killed are still leaving


def make(name: str, limits: Limits) -> Cgroup | None:
    """A group with these limits, or None where this machine does not let us."""
    for parent in _parents():
        path = parent / _folder_of(name)
        try:
            path.mkdir(exist_ok=True)
        except OSError:
            continue
        try:
            (path / "memory.max").write_text(str(limits.memory_bytes))
            (path / "pids.max").write_text(str(limits.pids))
            quota = round(limits.cpus * _PERIOD_US)
            with contextlib.suppress(OSError):  # these two exist on some kernels only
                (path / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
                (path / "memory.swap.max").write_text("0")
        except OSError:
            Cgroup(path).remove()
            continue
        return Cgroup(path)
    return None


def make_counting(name: str) -> Cgroup | None:
    """A group that only counts, or None where this machine does not let us."""
    for parent in _candidates():
        path = parent / _folder_of(name)
        with contextlib.suppress(OSError):
            if not os.access(parent / "cgroup.procs", os.W_OK):
                continue  # nobody of ours could join
            path.mkdir(exist_ok=True)
            if (path / "cgroup.type").read_text().strip() == "domain":
                return Cgroup(path, is_capped=False)
            path.rmdir()
    return None


def _folder_of(name: str) -> str:
    return _PREFIX + re.sub(r"[^\w.-]", "_", name)[:100]


def reap() -> Sequence[str]:
    """Remove groups without processes; a live sandbox's group always has its supervisor."""
    removed = []
    for parent in _candidates():
        for path in parent.glob(_PREFIX + "*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_ctime > _FRESH_S:
                    path.rmdir()
                    removed.append(f"cgroup {path.name}")
    return removed


def _candidates() -> list[Path]:
    """Where groups could go: our own cgroup, then the root."""
    root = _mount_point()
    return [] if root is None else [*dict.fromkeys((root / _own_path().lstrip("/"), root))]


def _parents() -> Iterator[Path]:
    """Those of them that hand out controllers, which are enabled."""
    for parent in _candidates():
        with contextlib.suppress(OSError):
            (parent / "cgroup.subtree_control").write_text(_CONTROLLERS)
        with contextlib.suppress(OSError):
            enabled = (parent / "cgroup.subtree_control").read_text().split()
            if {"memory", "pids"} <= set(enabled):
                yield parent


def _mount_point() -> Path | None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(where)
    return None


def _own_path() -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return line[3:]
    return "/"
