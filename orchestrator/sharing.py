"""Which tasks of a sweep work on a GPU, which GPUs those are, and how many sessions share one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.devices import asked_for, canonical_hardware, device_of
from orchestrator.errors import UserError
from orchestrator.turns.seats import Seats
from tasks.spec import Task

PER_GPU = 4
"""Sessions on one GPU where nothing else is said: an agent thinks most of the time, and in a turn
the others stand still."""


@dataclass(frozen=True)
class Devices:
    """The devices of a sweep. ``gpus`` are UUIDs, empty where every task runs on the CPU."""

    on_gpu: frozenset[str] = frozenset()  # names of tasks
    gpus: tuple[str, ...] = ()
    per_gpu: int = PER_GPU

    def seats(self) -> Seats | None:
        """What sessions on a GPU wait for; None where there are none."""
        return Seats(self.gpus, self.per_gpu) if self.on_gpu else None

    def of(self, task: str) -> str:
        """Where a task is graded: "cpu", or the first of the GPUs (they must be alike)."""
        return self.gpus[0] if task in self.on_gpu else "cpu"


@dataclass(frozen=True)
class Wanted:
    """As asked for: GPUs by the beginnings of their UUIDs, and ``device`` "cpu" for none."""

    gpus: Sequence[str] = ()
    device: str = ""
    per_gpu: int = PER_GPU


def chosen_devices(
    tasks: Sequence[Task], deck: str, wanted: Wanted, say: Callable[[str], None]
) -> Devices:
    """Where each task works. Raises UserError, Unfit, NoSuchGpu, which say what to do.

    Tasks that need a GPU get those asked for, or the only one here; tasks that know nothing of GPUs
    run on the CPU beside them.
    """
    if wanted.gpus and wanted.device:
        raise UserError("--gpu and --device say the device twice; give one")
    gpus = tuple(dict.fromkeys(asked_for(gpu, "") for gpu in wanted.gpus))
    chosen: dict[str, str] = {}
    for task in tasks:
        asked = wanted.device or (gpus[0] if gpus and "cuda" in task.devices else "")
        if gpus and not asked:
            asked = "cpu"
        device, told = device_of(task, asked, canonical_hardware(task, deck))
        if told:
            say(told)
        chosen[task.name] = device
    used = tuple(dict.fromkeys(device for device in chosen.values() if device != "cpu"))
    on_gpu = frozenset(name for name, device in chosen.items() if device != "cpu")
    return Devices(on_gpu, gpus or used, wanted.per_gpu)
