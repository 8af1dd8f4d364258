"""Sandboxes by bubblewrap: one namespace a session, no daemon, starts in milliseconds."""

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from sandboxes import cgroup, shortcomings
from sandboxes.base import WORKSPACE, Mount, Sandbox, SandboxSpec
from sandboxes.cgroup import Cgroup
from sandboxes.devices import gpu_devices
from sandboxes.errors import SandboxStartFailed, SandboxUnavailable
from sandboxes.jail import Jail, kill_tree, spare_uid
from sandboxes.supervised import (
    DOORS,
    SUPERVISOR,
    SupervisedSandbox,
    door_mounts,
    door_words,
)
from sandboxes.toolchain import BASE_ENV, host_toolchain, interpreter
from sandboxes.volume import Volume, volume_in
from sandboxes.workspace import Workspace

SUPERVISOR_INSIDE, DOORS_INSIDE = "/opt/supervisor.py", "/opt/doors.py"
_GRACE_S = 5.0


class BubblewrapProvider:
    """Linux namespaces through the `bwrap` program; needs no privileges."""

    kind = "bubblewrap"

    def unavailable_reason(self) -> str | None:
        """What is missing, found by starting a jail (20 ms)."""
        if sys.platform != "linux":
            return "bubblewrap needs Linux"
        for program, package in (("bwrap", "bubblewrap"), ("prlimit", "util-linux")):
            if shutil.which(program) is None:
                return f"{program} is not installed; run `apt-get install {package}`"
        jail = Jail(host_toolchain(()).mounts, uid=spare_uid("probe"))
        process = jail.popen(["true"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _, complaint = process.communicate()
        if process.returncode == 0:
            return None
        said = complaint.decode(errors="replace").strip() or f"exit code {process.returncode}"
        return (
            f"bubblewrap cannot make namespaces here: {said}. Allow unprivileged user namespaces "
            "(`sysctl kernel.unprivileged_userns_clone=1`, on Ubuntu "
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`)"
        )

    def shortcomings(self) -> Sequence[str]:
        """Without cgroups memory is capped for each process only; see `shortcomings`."""
        found = list(shortcomings.of_isolating_kinds())
        if (reason := cgroup.why_not()) is not None:
            found.append(f"memory is capped for each process, not in sum; CPU not at all: {reason}")
        return found

    def start(self, spec: SandboxSpec) -> Sandbox:
        """Start a namespace with a supervisor in it."""
        if shutil.which("bwrap") is None:
            raise SandboxUnavailable(str(self.unavailable_reason()))
        uid = spare_uid(spec.session_id)
        if spec.image:
            raise SandboxUnavailable(f"images are docker's; {self.kind} has the host's tools")
        volume = volume_in(spec.state_dir, spec.limits.disk_bytes)
        with volume.held():
            workspace = Workspace(volume, WORKSPACE, uid, spec.limits)
            group = cgroup.make(spec.session_id, spec.limits)
            return self._started(spec, _jail(spec, volume, uid, group), workspace, group)

    def _started(
        self, spec: SandboxSpec, jail: Jail, workspace: Workspace, group: Cgroup | None
    ) -> Sandbox:
        """A supervisor in the jail, greeted."""
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as complaints:
            process = _supervise(jail, theirs, complaints, door_words(spec))
            theirs.close()
            try:
                return SupervisedSandbox(
                    self.kind,
                    ours,
                    workspace,
                    env=BASE_ENV | dict(spec.env),
                    limits=spec.limits,
                    end=_End(process, group),
                    doors=tuple(spec.doors),
                )
            except SandboxStartFailed as error:
                complaints.seek(0)
                said = complaints.read(4096).decode(errors="replace").strip()
                raise SandboxStartFailed(f"{error}: {said}") from error

    def reap(self, is_live: Callable[[str], bool]) -> Sequence[str]:
        """Processes die with their owner; only empty cgroups can be left."""
        del is_live
        return cgroup.reap()


@dataclass(frozen=True)
class _End:
    """Waits for a namespace that was hung up on, and forces it."""

    process: subprocess.Popen[bytes]
    group: Cgroup | None

    def __call__(self) -> None:
        try:
            self.process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            kill_tree(self.process)
        if self.group is not None:
            self.group.remove()


def _jail(spec: SandboxSpec, volume: Volume, uid: int, group: Cgroup | None) -> Jail:
    mounts = spec.mounts or host_toolchain().mounts
    return Jail(
        mounts=(
            *mounts,
            Mount(SUPERVISOR, SUPERVISOR_INSIDE),
            Mount(DOORS, DOORS_INSIDE),
            *door_mounts(spec),
        ),
        writable=(Mount(volume.folder, WORKSPACE),),
        devices=gpu_devices(spec.gpus),
        uid=uid,
        limits=spec.limits,
        cap_memory=group is None and not spec.gpus and not spec.reserves_memory,
        as_init=True,
        cgroup=None if group is None else group.procs,
        within=volume.visible,
    )


def _supervise(
    jail: Jail, wire: socket.socket, complaints: IO[bytes], doors: Sequence[str]
) -> subprocess.Popen[bytes]:
    fd = wire.fileno()
    command = [str(interpreter()), "-I", "-S", SUPERVISOR_INSIDE, "fd", str(fd), *doors]
    return jail.popen(command, pass_fds=[fd], stdout=subprocess.DEVNULL, stderr=complaints)
