"""Commands on the host itself: no isolation at all, for machines that have nothing better.

A command may read what its user may read, reach the network, and kill its supervisor. What holds:
a scrubbed environment, limits, and that a command's descendants are killed with it.
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandboxes import shortcomings
from sandboxes.base import Sandbox, SandboxSpec
from sandboxes.errors import SandboxUnavailable
from sandboxes.jail import kill_tree, unconfined
from sandboxes.supervised import SUPERVISOR, SupervisedSandbox
from sandboxes.toolchain import BASE_ENV, SITE, host_toolchain, interpreter, link_packages
from sandboxes.volume import Volume, volume_in
from sandboxes.workspace import Workspace

OWNER_VARIABLE = "KERNEL_ORCHESTRATOR_OWNER"
"""Marks every process of such a sandbox, so that `reap` finds those that outlived their owner."""

_GRACE_S = 5.0


class ProcessProvider:
    """No isolation; on request only."""

    kind = "process"

    def unavailable_reason(self) -> str | None:
        """It needs util-linux, which every Linux has."""
        for program in ("setpriv", "prlimit"):
            if shutil.which(program) is None:
                return f"{program} is not installed; run `apt-get install util-linux`"
        return None

    def shortcomings(self) -> Sequence[str]:
        """There is no isolation here at all."""
        return ["it isolates nothing: cells are marked", *shortcomings.of_the_disk()]

    def start(self, spec: SandboxSpec) -> Sandbox:
        """Start a supervisor as a plain process."""
        if spec.image:
            raise SandboxUnavailable(f"images are docker's; {self.kind} has the host's tools")
        volume = volume_in(spec.state_dir, spec.limits.disk_bytes)
        with volume.held():
            workspace = Workspace(volume, str(volume.folder), os.geteuid(), spec.limits)
            return self._started(spec, volume, workspace)

    def _started(self, spec: SandboxSpec, volume: Volume, workspace: Workspace) -> Sandbox:
        """A supervisor beside us, greeted."""
        env = _environment(spec)
        doors = [f"0:{path.resolve()}" for path in spec.doors.values()]  # any port: it is shared
        ours, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            process = unconfined(
                [str(interpreter()), "-I", "-S", str(SUPERVISOR), "fd", str(fd), *doors],
                env=env,
                cwd=volume.folder,
                within=volume.visible,
                limits=spec.limits,
                cap_memory=not spec.gpus,
                dies_with_us=False,  # it first kills what it started, when the wire closes
                pass_fds=[fd],
            )
        end = _End(process)
        return SupervisedSandbox(
            self.kind,
            ours,
            workspace,
            env=env,
            limits=spec.limits,
            end=end,
            doors=tuple(spec.doors),
        )

    def reap(self, is_live: Callable[[str], bool]) -> Sequence[str]:
        """Kill marked processes of dead owners."""
        removed = []
        for pid, owner in _marked():
            if not is_live(owner):
                os.kill(pid, signal.SIGKILL)
                removed.append(f"process {pid}")
        return removed


@dataclass(frozen=True)
class _End:
    """Waits for a supervisor that was hung up on, and forces it."""

    process: subprocess.Popen[bytes]

    def __call__(self) -> None:
        try:
            self.process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            kill_tree(self.process)


def _environment(spec: SandboxSpec) -> dict[str, str]:
    """The scrubbed environment; temporary files and the home folder are fresh ones."""
    scratch = spec.state_dir.resolve() / "tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    env: dict[str, str] = BASE_ENV | dict(spec.env)
    env |= {"HOME": str(scratch), "TMPDIR": str(scratch), OWNER_VARIABLE: spec.owner}
    return env | _packages(spec, scratch.parent / "site", env)


def _packages(spec: SandboxSpec, site: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The allowed packages as links: there are no mounts here."""
    shutil.rmtree(site, ignore_errors=True)
    link_packages(spec.mounts or host_toolchain().mounts, site)
    return {"PYTHONPATH": str(site)} if env.get("PYTHONPATH") == SITE else {}


def _marked() -> Iterator[tuple[int, str]]:
    prefix = f"{OWNER_VARIABLE}=".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone, or somebody else's
        for variable in variables:
            if variable.startswith(prefix):
                yield int(entry.name), os.fsdecode(variable[len(prefix) :])
