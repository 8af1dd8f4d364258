"""How a container gets its GPUs, by UUID, with whatever the engine offers for it.

The host image needs device nodes only: the driver's libraries come with the host's ``/usr``. An
image of its own has no driver, so the engine is asked for one where it can give it, by CDI or by
NVIDIA's runtime (as ``--gpus`` does); else nodes and the host's driver libraries are mounted.
"""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandboxes.base import Mount
from sandboxes.devices import gpu_devices

DRIVER = "/opt/driver"
"""Where the host's driver libraries are, inside, when no runtime brings them."""

_CDI_KIND = "nvidia.com/gpu"
_CAPABILITIES = ["gpu", "compute", "utility"]
_LIBRARY = re.compile(
    r"^\s*(lib(?:cuda|cudadebugger|nvidia-(?:gpucomp|ml|nvvm|ptxjitcompiler))\.so\.\d+)"
    r" \(libc6,(?:x86-64|AArch64)[^)]*\) => (\S+)$",
    re.MULTILINE,
)


def way(info: Mapping[str, Any], gpus: Sequence[str], *, host_image: bool) -> str:
    """``cdi``, ``runtime``, ``nodes``, or nothing, by what the engine's ``/info`` says."""
    if not gpus:
        return ""
    if host_image:
        return "nodes"
    known = {device.get("ID") for device in info.get("DiscoveredDevices") or ()}
    if all(f"{_CDI_KIND}={gpu}" in known for gpu in gpus):
        return "cdi"
    return "runtime" if "nvidia" in (info.get("Runtimes") or {}) else "nodes"


def container_options(how: str, gpus: Sequence[str]) -> dict[str, Any]:
    """Options of a container for `way`. Raises SandboxUnavailable for an unknown GPU."""
    from docker.types import DeviceRequest  # noqa: PLC0415 - heavy

    if how == "cdi":
        names = [f"{_CDI_KIND}={gpu}" for gpu in gpus]
        return {"device_requests": [DeviceRequest(driver="cdi", device_ids=names)]}
    if how == "runtime":
        wanted = DeviceRequest(driver="nvidia", device_ids=list(gpus), capabilities=[_CAPABILITIES])
        return {"device_requests": [wanted]}
    return {"devices": [f"{path}:{path}:rw" for path in gpu_devices(gpus)]}


def driver_mounts(listing: str | None = None) -> list[Mount]:
    """The host's driver libraries, below `DRIVER`, as ``ldconfig -p`` lists them."""
    if listing is None:
        listing = subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True
        ).stdout
    found: dict[str, Path] = {}
    for name, path in _LIBRARY.findall(listing):
        found.setdefault(name, Path(path))
    return [Mount(path.resolve(), f"{DRIVER}/{name}") for name, path in found.items()]
