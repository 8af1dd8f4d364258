"""Sandboxes by the Docker Engine API: one container a session, on the host image.

The supervisor is the container's PID 1 and calls the orchestrator over a Unix socket of the
session's own folder, so that commands cost no round trip through the daemon, and an orchestrator's
death ends the container.
"""

import contextlib
import os
import shutil
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandboxes import host_image, shortcomings
from sandboxes.base import WORKSPACE, Mount, Sandbox, SandboxSpec
from sandboxes.devices import gpu_devices
from sandboxes.errors import SandboxStartFailed, SandboxUnavailable
from sandboxes.jail import SHM_SHARE, TMP_SHARE, spare_uid
from sandboxes.supervised import (
    DOORS,
    START_S,
    SUPERVISOR,
    SupervisedSandbox,
    door_mounts,
    door_words,
    filter_words,
)
from sandboxes.toolchain import BASE_ENV, host_toolchain, interpreter
from sandboxes.volume import MOUNT_OPTIONS, Volume, volume_in
from sandboxes.workspace import Workspace

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

OWNER_LABEL, SESSION_LABEL = "kernel-orchestrator.owner", "kernel-orchestrator.session"

_ANSWER_S = 0.8  # of `unavailable_reason`; a daemon on a Unix socket needs a few milliseconds
_CALL_S = 60.0
_END_S = 15.0
_SUPERVISOR_INSIDE, _DOORS_INSIDE, _WIRE_INSIDE = "/opt/supervisor.py", "/opt/doors.py", "/run/wire"
_LOOK_S = 0.25
_NOBODY = 65534
_NO_SDK = "the docker SDK is not installed; run `pip install docker`"
_HINT = "start one (`.ci/docker-engine` in a checkout) and set DOCKER_HOST, or use bubblewrap"


class DockerProvider:
    """Containers of the engine that `DOCKER_HOST` names; Podman's socket works as well."""

    kind = "docker"

    def unavailable_reason(self) -> str | None:
        """What is missing, found by asking the engine and running `true` in the host image."""
        if find_spec("docker") is None:
            return _NO_SDK
        from docker.errors import DockerException  # noqa: PLC0415 - heavy

        try:
            with _client(_ANSWER_S) as client:
                remapped = [
                    option
                    for option in client.info().get("SecurityOptions") or ()
                    if "userns" in option or "rootless" in option
                ]
            if remapped:
                return f"this engine remaps users ({remapped[0]}); use bubblewrap"
            with _client(_CALL_S) as client:
                _try_host_image(client)
        except SandboxUnavailable as error:
            return str(error)
        except DockerException as error:
            return f"the engine cannot run the host image: {error}"
        return None

    def shortcomings(self) -> Sequence[str]:
        """See `shortcomings`; the engine itself caps memory, processes and CPU."""
        return shortcomings.of_isolating_kinds()

    def start(self, spec: SandboxSpec) -> Sandbox:
        """Start a container whose PID 1 is the supervisor."""
        if find_spec("docker") is None:
            raise SandboxUnavailable(_NO_SDK)
        volume = volume_in(spec.state_dir, spec.limits.disk_bytes)
        with volume.held():
            return self._started(spec, volume)

    def _started(self, spec: SandboxSpec, volume: Volume) -> Sandbox:
        """A container whose supervisor has called."""
        from docker.errors import DockerException  # noqa: PLC0415 - heavy

        workspace = Workspace(volume, WORKSPACE, spare_uid(spec.session_id), spec.limits)
        with _client(_CALL_S) as client, _listener(spec.state_dir / "wire") as listener:
            try:
                image = host_image.ensure(client)
                options = _options(spec, volume)
                container = client.containers.create(image, **options)
            except DockerException as error:
                raise SandboxStartFailed(f"the engine makes no container: {error}") from error
            end = _End(str(container.id))
            try:
                container.start()
                wire = _accept(listener, container, spare_uid(spec.session_id))
            except (DockerException, OSError) as error:
                end.force(container)
                raise SandboxStartFailed(f"the container did not start: {error}") from error
        env = BASE_ENV | dict(spec.env)
        return SupervisedSandbox(
            self.kind,
            wire,
            workspace,
            env=env,
            limits=spec.limits,
            end=end,
            doors=tuple(spec.doors),
        )

    def reap(self, is_live: Callable[[str], bool]) -> Sequence[str]:
        """Remove containers whose owner is dead."""
        removed: list[str] = []
        if find_spec("docker") is None:
            return removed
        with contextlib.suppress(SandboxUnavailable), _client(_CALL_S) as client:
            for container in client.containers.list(all=True, filters={"label": OWNER_LABEL}):
                if not is_live(container.labels[OWNER_LABEL]):
                    _End(str(container.id)).force(container)
                    removed.append(f"container {container.name}")
        return removed


@dataclass(frozen=True)
class _End:
    """Waits until the container of a supervisor that was hung up on is gone, and forces it."""

    container: str

    def __call__(self) -> None:
        from docker.errors import DockerException  # noqa: PLC0415 - heavy

        # An engine that does not answer now leaves a labelled container for `reap`; a container
        # that is not found any more is what was wanted.
        with contextlib.suppress(DockerException, SandboxUnavailable), _client(_CALL_S) as client:
            container = client.containers.get(self.container)
            try:
                container.wait(timeout=_END_S, condition="removed")
            except OSError:  # requests' time-outs are OSErrors
                self.force(container)

    def force(self, container: "Container") -> None:
        """Kill and remove; a removal under way is as good."""
        from docker.errors import DockerException  # noqa: PLC0415 - heavy

        with contextlib.suppress(DockerException):
            container.remove(force=True, v=True)


@contextlib.contextmanager
def _client(timeout_s: float) -> Iterator["DockerClient"]:
    """A client; raises SandboxUnavailable when no engine answers."""
    import docker  # noqa: PLC0415 - heavy
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        client = docker.from_env(timeout=timeout_s)  # type: ignore[arg-type]
    except DockerException as error:
        where = os.environ.get("DOCKER_HOST") or "/var/run/docker.sock"
        raise SandboxUnavailable(f"no Docker Engine answers at {where}; {_HINT}") from error
    try:
        yield client
    finally:
        client.close()


def _options(spec: SandboxSpec, volume: Volume) -> dict[str, Any]:
    """Everything about the container of a session."""
    limits, uid = spec.limits, spare_uid(spec.session_id)
    memory = limits.memory_bytes
    mounts = (
        *(spec.mounts or host_toolchain().mounts),
        Mount(SUPERVISOR, _SUPERVISOR_INSIDE),
        Mount(DOORS, _DOORS_INSIDE),
        *door_mounts(spec),
        Mount(spec.state_dir.resolve() / "wire", _WIRE_INSIDE),
    )
    wire = f"{_WIRE_INSIDE}/socket"
    supervisor = [str(interpreter()), "-I", "-S", _SUPERVISOR_INSIDE, "connect", wire]
    return _confinement(mounts) | {
        "command": [*supervisor, *filter_words(), *door_words(spec)],
        "user": f"{uid}:{uid}",
        "labels": {OWNER_LABEL: spec.owner, SESSION_LABEL: spec.session_id},
        "mounts": [*_binds(mounts), _workspace_mount(volume)],
        "devices": [f"{path}:{path}:rw" for path in gpu_devices(spec.gpus)],
        "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={memory // TMP_SHARE}"},  # noqa: S108
        "shm_size": memory // SHM_SHARE,
        "mem_limit": memory,
        "memswap_limit": memory,
        "nano_cpus": round(min(limits.cpus, os.cpu_count() or 1) * 1e9),
        "pids_limit": limits.pids,
        "ulimits": _ulimits(limits.file_bytes),
    }


def _confinement(mounts: Sequence[Mount]) -> dict[str, Any]:
    """What every container of ours is denied; the engine's default seccomp filter applies."""
    return {
        "mounts": _binds(mounts),
        "user": f"{_NOBODY}:{_NOBODY}",
        "hostname": "sandbox",
        "working_dir": "/",
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "log_config": {"type": "none"},
        "auto_remove": True,
    }


def _binds(mounts: Sequence[Mount]) -> list[Any]:
    from docker.types import Mount as Bind  # noqa: PLC0415 - heavy

    return [Bind(mount.target, str(mount.source), type="bind", read_only=True) for mount in mounts]


def _workspace_mount(volume: Volume) -> Any:
    """The engine mounts a device by itself, so that it needs no mount of ours in its view.

    The volume has no name, hence goes with its container; its content is the image's.
    """
    from docker.types import DriverConfig  # noqa: PLC0415 - heavy
    from docker.types import Mount as Bind  # noqa: PLC0415

    if not volume.device:
        return Bind(WORKSPACE, str(volume.folder), type="bind")
    options = {"type": "ext4", "device": volume.device, "o": f"nosuid,nodev,{MOUNT_OPTIONS}"}
    driver = DriverConfig("local", options)
    return Bind(WORKSPACE, None, type="volume", no_copy=True, driver_config=driver)


def _ulimits(file_bytes: int) -> list[Any]:
    from docker.types import Ulimit  # noqa: PLC0415 - heavy

    files = Ulimit(name="fsize", soft=file_bytes, hard=file_bytes)
    return [files, Ulimit(name="core", soft=0, hard=0)]


def _try_host_image(client: "DockerClient") -> None:
    """Run `true`. Raises DockerException when the engine does not see this host's files."""
    options = _confinement(host_toolchain(()).mounts) | {"auto_remove": False}
    container = client.containers.create(host_image.ensure(client), ["true"], **options)
    try:
        container.start()
        container.wait(timeout=_END_S)
    finally:
        container.remove(force=True, v=True)


@contextlib.contextmanager
def _listener(folder: Path) -> Iterator[socket.socket]:
    """A listening socket in a fresh folder, gone once it has served its one caller."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{fd}/socket")  # any path's length, not only 107 bytes
            os.chmod("socket", 0o666, dir_fd=fd)  # noqa: S103 - `_accept` checks who calls
            listener.listen(1)
            yield listener
            os.unlink("socket", dir_fd=fd)
    finally:
        os.close(fd)


def _accept(listener: socket.socket, container: "Container", uid: int) -> socket.socket:
    """The supervisor's call. Raises TimeoutError, or NotFound when the container ended."""
    deadline = time.monotonic() + START_S
    listener.settimeout(_LOOK_S)
    while time.monotonic() < deadline:
        try:
            wire, _ = listener.accept()
        except TimeoutError:
            container.reload()  # raises NotFound once it has ended
            continue
        credentials = wire.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", credentials)[1] == uid:
            return wire
        wire.close()
    raise TimeoutError("its supervisor did not call")
