"""Who writes: a process, told apart from a later one that got the same pid.

An owner reads ``<host>-<pid>-<start ticks>-<boot>``. The host part digests the host's name, its
machine id and the pid namespace, so a container is another host: its pids cannot be asked about,
and only expiry decides.
"""

import hashlib
import os
import platform
from functools import cache
from pathlib import Path

_UNKNOWN = "0"


def this_process() -> str:
    """The owner text of the calling process."""
    pid = os.getpid()
    return f"{_host()}-{pid}-{_start_ticks(pid) or _UNKNOWN}-{_boot()}"


def is_of_this_host(owner: str) -> bool:
    """True when ``owner`` is a process that this host can be asked about."""
    parts = owner.split("-")
    return len(parts) == 4 and parts[0] == _host() and parts[1].isdigit()


def is_live(owner: str) -> bool:
    """False only when ``owner`` was a process of this host that is gone for certain."""
    if not is_of_this_host(owner):
        return True
    _, pid, ticks, boot = owner.split("-")
    if boot != _boot():
        return False
    if ticks == _UNKNOWN:
        return _pid_exists(int(pid))
    return _start_ticks(int(pid)) == ticks


@cache
def _host() -> str:
    text = f"{platform.node()}:{_read('/etc/machine-id')}:{_pid_namespace()}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id").strip().replace("-", "")[:12] or _UNKNOWN


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _start_ticks(pid: int) -> str | None:
    """Clock ticks from boot to the start of ``pid``; None when it is gone or a zombie."""
    stat = _read(f"/proc/{pid}/stat")
    fields = stat.rpartition(")")[2].split()  # the command may hold spaces and brackets
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    return fields[19]


def _pid_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
