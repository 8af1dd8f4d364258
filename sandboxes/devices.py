"""NVIDIA devices of a sandbox, by UUID: device nodes; the driver's libraries come with `/usr`."""

from collections.abc import Sequence
from pathlib import Path

from sandboxes.errors import SandboxUnavailable

_DRIVER = Path("/proc/driver/nvidia/gpus")
_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


def gpu_devices(uuids: Sequence[str], driver: Path = _DRIVER) -> tuple[str, ...]:
    """Device nodes for these GPUs, empty for none. Raises SandboxUnavailable for an unknown one."""
    if not uuids:
        return ()
    minors = dict(_describe(path) for path in sorted(driver.glob("*/information")))
    unknown = [uuid for uuid in uuids if uuid not in minors]
    if unknown:
        there = ", ".join(minors) or "none"
        raise SandboxUnavailable(f"no GPU {', '.join(unknown)} on this machine (there: {there})")
    control = [path for path in _CONTROL if Path(path).exists()]
    return (*control, *(f"/dev/nvidia{minors[uuid]}" for uuid in uuids))


def _describe(information: Path) -> tuple[str, str]:
    """UUID and device minor of one GPU."""
    pairs = (line.split(":", 1) for line in information.read_text().splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in pairs}
    return fields["GPU UUID"], fields["Device Minor"]
