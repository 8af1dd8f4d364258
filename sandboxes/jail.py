"""One launch of an untrusted process: bubblewrap with a uid of its own, or, unconfined, without.

Started by root, bubblewrap makes the mounts as root (the interpreter may lie below a closed home
folder) and ``setpriv`` then gives up the uid, every capability and the bounding set, as the first
program inside; ``--unshare-user --uid`` alone would still read root's files. Started by anybody
else, a user namespace does the same job. Either way the process has its own mount, process,
network, IPC, host-name and cgroup namespaces, cannot gain privileges, and dies with us.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from sandboxes import spawner
from sandboxes.base import Limits, Mount
from sandboxes.spawner import Surroundings
from sandboxes.syscalls import filter_program

Stream = int | IO[bytes] | None

_FIRST_SPARE_UID, _SPARE_UIDS = 1 << 30, 1 << 28
"""Above the ranges that distributions, systemd and subuid files hand out."""

TMP_SHARE, SHM_SHARE = 2, 4
"""What part of the memory /tmp and /dev/shm may take; full ones must leave room to empty them."""

_NOBODY = 65534
_DROP = ("--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
_DEFAULT_LIMITS = Limits()
_UNTIL_SETPRIV = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
_NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts")
_JOIN_CGROUP = 'echo $$ > "$0" && exec "$@"'


@dataclass(frozen=True)
class Jail:
    """A bubblewrap launch. Only ``mounts`` (read-only) and ``writable`` are visible inside.

    ``uid`` counts only when root starts it. ``as_init`` makes the process PID 1 of its namespace:
    nothing inside can then kill it, and it must reap orphans. ``cap_memory`` applies
    ``limits.memory_bytes`` as address space; leave it off for CUDA, which reserves far more than
    it uses. ``cgroup`` is a `cgroup.procs` file to join first. ``within`` is entered for the start.
    """

    mounts: tuple[Mount, ...]
    writable: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    uid: int = _NOBODY
    limits: Limits = field(default_factory=Limits)
    cap_memory: bool = True
    as_init: bool = False
    cgroup: Path | None = None
    within: Surroundings = contextlib.nullcontext

    def popen(
        self,
        argv: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
    ) -> subprocess.Popen[bytes]:
        """Start ``argv`` inside; the descriptors keep their numbers. End it by `kill_tree`."""
        # Options travel in a memfd and the environment is scrubbed: both can be read in /proc
        # inside, where bubblewrap's own process is visible.
        options = _memfd(b"".join(os.fsencode(word) + b"\0" for word in self._options()))
        calls = _memfd(filter_program())
        with os.fdopen(options, "rb"), os.fdopen(calls, "rb"):
            given = [
                "--args",
                str(options),
                *(["--seccomp", str(calls)] if filter_program() else []),
            ]
            return spawner.popen(
                [*_join(self.cgroup, "bwrap"), "bwrap", *given, "--", *self._inner(), *argv],
                within=self.within,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                pass_fds=(*pass_fds, options, calls),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
            )

    def _options(self) -> list[str]:
        options = [*_NAMESPACES, "--unshare-cgroup-try", "--hostname", "sandbox"]
        options += ["--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv"]
        options += ["--as-pid-1"] if self.as_init else []
        options += _privileges()
        for name, value in self.env.items():
            options += ["--setenv", name, value]
        options += ["--dev", "/dev", "--proc", "/proc"]
        for folder, share in ("/tmp", TMP_SHARE), ("/dev/shm", SHM_SHARE):  # noqa: S108 - inside
            size = ["--size", str(self.limits.memory_bytes // share)]
            options += ["--perms", "1777", *size, "--tmpfs", folder]
        options += self._mounts()
        return [*options, "--remount-ro", "/", "--chdir", self.cwd]

    def _mounts(self) -> list[str]:
        options = _folders_above([*self.mounts, *self.writable])
        for mount in self.mounts:
            options += ["--ro-bind", str(mount.source), mount.target]
        for mount in self.writable:
            options += ["--bind", str(mount.source), mount.target]
        for device in self.devices:
            options += ["--dev-bind", device, device]
        return options

    def _inner(self) -> list[str]:
        """What runs inside before ``argv``: the change of uid, then the limits."""
        # A shared uid shares one count of processes, so only a uid of one's own is capped.
        own_uid = not _is_root() or self.uid >= _FIRST_SPARE_UID
        limits = rlimit_command(self.limits, memory=self.cap_memory, pids=own_uid)
        if not _is_root():
            return limits
        identity = ["--reuid", str(self.uid), "--regid", str(self.uid), *_DROP]
        # Changing the uid clears the signal that --die-with-parent has set.
        return ["setpriv", *identity, "--pdeathsig", "KILL", *limits]


def unconfined(  # noqa: PLR0913 - the same as `Jail.popen`, and what a Jail holds
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    uid: int | None = None,
    limits: Limits = _DEFAULT_LIMITS,
    cap_memory: bool = True,
    dies_with_us: bool = True,
    cgroup: Path | None = None,
    within: Surroundings = contextlib.nullcontext,
    pass_fds: Sequence[int] = (),
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
) -> subprocess.Popen[bytes]:
    """Start ``argv`` with no isolation: own session, scrubbed environment, limits.

    ``dies_with_us`` kills it, but none of its children, when this process ends. ``uid`` needs
    root, and files that the uid can reach (`toolchain.reachable_by_others`). ``cgroup`` and
    ``within`` as for a `Jail`.
    """
    identity = ["--no-new-privs", *(("--pdeathsig", "KILL") if dies_with_us else ())]
    if uid is not None:
        identity += ["--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
    limited = rlimit_command(limits, memory=cap_memory, pids=uid is not None)
    return spawner.popen(
        [*_join(cgroup, "setpriv"), "setpriv", *identity, *limited, *argv],
        within=within,
        env=dict(env),
        cwd=cwd,
        pass_fds=tuple(pass_fds),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill what `Jail.popen` or `unconfined` started, with all that is in it, and wait for it.

    In a jail the first child is PID 1 of the namespace: with it the kernel kills every process
    inside, and bubblewrap is not gone before they are. Unconfined, the process group and the
    descendants that can still be seen are killed.
    """
    if process.poll() is not None:
        return
    for pid in descendants(process.pid):
        _kill(pid)
    if _leads_a_group(process.pid):
        _kill(-process.pid)
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def descendants(pid: int) -> list[int]:
    """All processes below ``pid``, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(entry), []).append(int(entry.name))
    found = list(children.get(pid, ()))
    for child in found:  # grows while it is walked
        found += children.get(child, ())
    return found


def _join(procs: Path | None, program: str) -> list[str]:
    """A command prefix that joins a cgroup first. Raises FileNotFoundError, as without a prefix."""
    if procs is None:
        return []
    if shutil.which(program) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    return ["/bin/sh", "-c", _JOIN_CGROUP, str(procs)]


def _memfd(data: bytes) -> int:
    """A descriptor that reads ``data`` from its start."""
    fd = os.memfd_create("options", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def spare_uid(name: str) -> int:
    """A uid for this name: the caller's own, or, for root, one that nothing else uses.

    Falls back to `nobody` where the range is not mapped (root of a small user namespace).
    """
    if not _is_root():
        return os.getuid()
    digest = hashlib.sha256(name.encode()).digest()
    uid = _FIRST_SPARE_UID + int.from_bytes(digest[:8], "big") % _SPARE_UIDS
    return uid if _is_mapped(uid) else _NOBODY


def rlimit_command(limits: Limits, *, memory: bool, pids: bool) -> list[str]:
    """A command prefix that sets the limits on what it runs."""
    command = ["prlimit", "--core=0", f"--fsize={limits.file_bytes}"]
    command += [f"--as={limits.memory_bytes}"] if memory else []
    return [*command, f"--nproc={limits.pids}"] if pids else command


def _privileges() -> list[str]:
    if _is_root():
        return [word for name in _UNTIL_SETPRIV for word in ("--cap-add", name)]
    return ["--unshare-user", "--uid", str(_NOBODY), "--gid", str(_NOBODY)]


def _folders_above(mounts: Iterable[Mount]) -> list[str]:
    """Open parents of the targets; bubblewrap would make them for root's eyes only."""
    covered: list[PurePosixPath] = []
    folders: dict[PurePosixPath, None] = {}
    for target in (PurePosixPath(mount.target) for mount in mounts):
        if not any(target.is_relative_to(above) for above in covered):
            folders.update(dict.fromkeys(reversed(target.parents[:-1])))
        covered.append(target)
    return [word for path in folders for word in ("--perms", "0755", "--dir", str(path))]


def _is_root() -> bool:
    return os.geteuid() == 0


def _is_mapped(uid: int) -> bool:
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, count = (int(word) for word in line.split())
        if first <= uid < first + count:
            return True
    return False


def _parent(entry: Path) -> int:
    try:
        stat = (entry / "stat").read_text(errors="replace")
    except OSError:
        return -1
    return int(stat.rpartition(")")[2].split()[1])


def _leads_a_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or another uid's
        os.kill(pid, signal.SIGKILL)
