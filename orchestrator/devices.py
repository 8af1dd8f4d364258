"""Which device a submission is graded on: as asked for, or the only one that can be meant.

On a host with several GPUs none is ever taken silently; a task that runs on both kinds is graded
on its deck's canonical hardware where that is the CPU, and that is said.
"""

from collections.abc import Iterable

from graders import machine
from orchestrator.errors import UserError
from tasks import hardware
from tasks.deck import deck_names, load_deck
from tasks.spec import Task


class NoSuchGpu(UserError):
    """This machine lacks the GPU that is needed."""

    exit_code = 3


class Unfit(UserError):
    """The task does not run on the device asked for."""


def asked_for(gpu: str, device: str) -> str:
    """``cpu``, a GPU's UUID, or empty where nothing was said. Raises UserError, NoSuchGpu."""
    if gpu and device:
        raise UserError(f"--gpu {gpu} and --device {device} say the device twice; give one")
    wanted = gpu or device
    if wanted in ("", "cpu"):
        return wanted
    return the_gpu() if wanted == "cuda" else _gpu(wanted)


def the_gpu() -> str:
    """The UUID of this host's only GPU. Raises UserError where there are several, NoSuchGpu."""
    there = machine.gpus()
    if len(there) > 1:
        raise UserError(f"this machine has {len(there)} GPUs; say which:\n{_listed(there)}")
    if not there:
        raise NoSuchGpu("this machine has no GPU that its driver answers for; see `doctor`")
    return there[0].uuid


def device_of(task: Task, wanted: str, canonical: str) -> tuple[str, str]:
    """The device for a task, and what to say of it (empty where there was no choice).

    ``canonical`` is the hardware key of the deck. Raises Unfit, UserError, NoSuchGpu.
    """
    if wanted:
        kind = "cpu" if wanted == "cpu" else "cuda"
        if kind not in task.devices:
            raise Unfit(f"`{task.name}` runs on {' or '.join(task.devices)} only")
        return wanted, ""
    if task.devices == ("cpu",):
        return "cpu", ""
    if "cpu" not in task.devices:
        uuid = the_gpu()
        return uuid, f"`{task.name}` is graded on the only GPU here, {uuid}"
    if canonical == "cpu":
        return "cpu", (
            f"`{task.name}` runs on cpu and cuda: graded on cpu, the canonical hardware of its "
            "deck; --gpu UUID grades it on a GPU"
        )
    raise UserError(
        f"`{task.name}` runs on cpu and cuda, and its deck's hardware is {canonical}: "
        f"say --device cpu or which GPU:\n{_listed(machine.gpus())}"
    )


def canonical_hardware(task: Task, deck: str = "") -> str:
    """Of the deck named, or of the first that has the task; "cpu" for a task of no deck."""
    for name in [deck] if deck in deck_names() else deck_names():
        found = load_deck(name)
        if any(cell.task == task.name for cell in found.cells):
            return found.canonical_hardware
    return "cpu"


def hardware_key(device: str) -> str:
    """What boards rank by: "cpu" for every CPU, else the GPU's key or name."""
    name = next((gpu.name for gpu in machine.gpus() if gpu.uuid == device), device)
    return "cpu" if device == "cpu" else hardware.match(name) or name


def _gpu(wanted: str) -> str:
    there = machine.gpus()
    found = [gpu.uuid for gpu in there if gpu.uuid.lower().startswith(wanted.lower())]
    if len(found) == 1:
        return found[0]
    many = f"{len(found)} GPUs match" if found else "no GPU here is"
    raise NoSuchGpu(f"{many} `{wanted}`; there are:\n{_listed(there)}")


def _listed(there: Iterable[machine.Gpu]) -> str:
    return "\n".join(f"  --gpu {gpu.uuid}  ({gpu.name})" for gpu in there) or "  none"
