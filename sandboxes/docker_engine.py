"""Sandboxes by the Docker Engine API: one container a session, on the host image or another.

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
from typing import TYPE_CHECKING

from sandboxes import docker_gpu, docker_options, host_image, shortcomings
from sandboxes.base import WORKSPACE, Sandbox, SandboxSpec
from sandboxes.docker_options import OWNER_LABEL
from sandboxes.errors import SandboxStartFailed, SandboxUnavailable
from sandboxes.jail import spare_uid
from sandboxes.supervised import START_S, SupervisedSandbox
from sandboxes.toolchain import host_toolchain
from sandboxes.volume import Volume, volume_in
from sandboxes.workspace import Workspace

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

_ANSWER_S = 0.8  # of `unavailable_reason`; a daemon on a Unix socket needs a few milliseconds
_CALL_S = 60.0
_END_S = 15.0
_LOOK_S = 0.25
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
            with client_of_engine(_ANSWER_S) as client:
                remapped = [
                    option
                    for option in client.info().get("SecurityOptions") or ()
                    if "userns" in option or "rootless" in option
                ]
            if remapped:
                return f"this engine remaps users ({remapped[0]}); use bubblewrap"
            with client_of_engine(_CALL_S) as client:
                _try_hostimage_of(client)
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
        with client_of_engine(_CALL_S) as client, _listener(spec.state_dir / "wire") as listener:
            try:
                image, own = image_of(client, spec.image)
                way = docker_gpu.way(
                    client.info() if spec.gpus else {}, spec.gpus, host_image=not spec.image
                )
                options = docker_options.of_session(spec, volume, way)
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
        return SupervisedSandbox(
            self.kind,
            wire,
            workspace,
            env=docker_options.environment(spec, own, way),
            limits=spec.limits,
            end=end,
            doors=tuple(spec.doors),
        )

    def reap(self, is_live: Callable[[str], bool]) -> Sequence[str]:
        """Remove containers whose owner is dead."""
        removed: list[str] = []
        if find_spec("docker") is None:
            return removed
        with contextlib.suppress(SandboxUnavailable), client_of_engine(_CALL_S) as client:
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
        with (
            contextlib.suppress(DockerException, SandboxUnavailable),
            client_of_engine(_CALL_S) as client,
        ):
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
def client_of_engine(timeout_s: float) -> Iterator["DockerClient"]:
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


def image_of(client: "DockerClient", name: str) -> tuple[str, Sequence[str]]:
    """The id of an image (no name: the host image) and its environment.

    Raises SandboxUnavailable for one that is not there.
    """
    from docker.errors import ImageNotFound  # noqa: PLC0415 - heavy

    if not name:
        return host_image.ensure(client), ()
    try:
        image = client.images.get(name)  # never looked up outside
    except ImageNotFound as error:
        raise SandboxUnavailable(
            f"the engine has no image {name}; `orchestrator sandbox build --cuda` makes ours"
        ) from error
    return str(image.id), image.attrs["Config"].get("Env") or ()


def _try_hostimage_of(client: "DockerClient") -> None:
    """Run `true`. Raises DockerException when the engine does not see this host's files."""
    options = docker_options.confinement(host_toolchain(()).mounts) | {"auto_remove": False}
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
