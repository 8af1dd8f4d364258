"""Everything about the container of a session, as the Docker SDK wants it."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from sandboxes import docker_gpu
from sandboxes.base import WORKSPACE, Mount, SandboxSpec
from sandboxes.jail import SHM_SHARE, TMP_SHARE, spare_uid
from sandboxes.supervised import DOORS, SUPERVISOR, door_mounts, door_words, filter_words
from sandboxes.toolchain import BASE_ENV, host_toolchain, interpreter
from sandboxes.volume import MOUNT_OPTIONS, Volume

OWNER_LABEL, SESSION_LABEL = "kernel-orchestrator.owner", "kernel-orchestrator.session"

_SUPERVISOR_INSIDE, _DOORS_INSIDE, _WIRE_INSIDE = "/opt/supervisor.py", "/opt/doors.py", "/run/wire"
_NOBODY = 65534


def of_session(spec: SandboxSpec, volume: Volume, gpu_way: str) -> dict[str, Any]:
    """The container of a session; ``gpu_way`` as `docker_gpu.way` says."""
    limits, uid = spec.limits, spare_uid(spec.session_id)
    memory = limits.memory_bytes
    mounts = (
        *_tools(spec, gpu_way),
        Mount(SUPERVISOR, _SUPERVISOR_INSIDE),
        Mount(DOORS, _DOORS_INSIDE),
        *door_mounts(spec),
        Mount(spec.state_dir.resolve() / "wire", _WIRE_INSIDE),
    )
    python = "python3" if spec.image else str(interpreter())
    supervisor = ["-I", "-S", _SUPERVISOR_INSIDE, "connect", f"{_WIRE_INSIDE}/socket"]
    return {
        **confinement(mounts),
        **docker_gpu.container_options(gpu_way, spec.gpus),
        "entrypoint": [python],  # not what an image of its own would run first
        "command": [*supervisor, *filter_words(), *door_words(spec)],
        "user": f"{uid}:{uid}",
        "labels": {OWNER_LABEL: spec.owner, SESSION_LABEL: spec.session_id},
        "mounts": [*_binds(mounts), _workspace_mount(volume)],
        "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={memory // TMP_SHARE}"},  # noqa: S108
        "shm_size": memory // SHM_SHARE,
        "mem_limit": memory,
        "memswap_limit": memory,
        "nano_cpus": round(min(limits.cpus, os.cpu_count() or 1) * 1e9),
        "pids_limit": limits.pids,
        "ulimits": _ulimits(limits.file_bytes),
    }


def environment(spec: SandboxSpec, of_image: Sequence[str], gpu_way: str) -> Mapping[str, str]:
    """What commands see; an image of its own says itself where its tools are."""
    if not spec.image:
        return BASE_ENV | dict(spec.env)
    own = dict(item.split("=", 1) for item in of_image)
    given = {name: value for name, value in spec.env.items() if name != "PYTHONPATH"}
    env = BASE_ENV | given | own
    if gpu_way == "nodes":
        paths = [docker_gpu.DRIVER, own.get("LD_LIBRARY_PATH", "")]
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
    return env


def confinement(mounts: Sequence[Mount]) -> dict[str, Any]:
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


def _tools(spec: SandboxSpec, gpu_way: str) -> Sequence[Mount]:
    """What the image lacks: the host's toolchain for the empty one, a driver for one of its own."""
    if not spec.image:
        return spec.mounts or host_toolchain().mounts
    return docker_gpu.driver_mounts() if gpu_way == "nodes" else ()


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
