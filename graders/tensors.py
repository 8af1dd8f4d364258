"""NumPy arrays and tensors of one GPU, for references that can work on the device.

A task whose reference says ``ON_DEVICE = True`` draws with ``make_inputs(shape, seed, device)`` and
takes CUDA tensors in ``reference``. What NumPy lacks is bits there, and the reference takes either.
"""

import importlib
from functools import cache
from typing import Any

from graders.fellows import join
from tasks.tensors import as_array


def is_tensor(array: Any) -> bool:
    """Whether it is torch's."""
    return hasattr(array, "is_cuda")


def to_host(array: Any) -> Any:
    """A NumPy array of it; what NumPy lacks as its bits."""
    return as_array(array) if is_tensor(array) else array


def to_device(array: Any) -> Any:
    """A tensor of it on the device in use, strides kept."""
    if is_tensor(array):
        return array
    held = torch().from_numpy(array if array.flags.writeable else array.copy())
    return held.to("cuda")


def works_on(reference: Any, device: str) -> bool:
    """Whether this reference does its work on that device, a GPU's UUID; it is then in use."""
    if device == "cpu" or not getattr(reference, "ON_DEVICE", False):
        return False
    use(device)
    return True


@cache
def use(uuid: str) -> int:
    """Let "cuda" mean this GPU in this process; its number. Raises ValueError."""
    cuda = torch().cuda
    for number in range(cuda.device_count()):
        if str(cuda.get_device_properties(number).uuid) in uuid:
            join(uuid)
            cuda.set_device(number)
            return number
    raise ValueError(f"no GPU {uuid} can be used by this process; see CUDA_VISIBLE_DEVICES")


@cache
def torch() -> Any:
    """The module; only GPU hosts have it."""
    return importlib.import_module("torch")
