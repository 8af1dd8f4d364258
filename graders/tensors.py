"""NumPy arrays and tensors of one GPU, for references that can work on the device.

A task whose reference says ``ON_DEVICE = True`` draws with ``make_inputs(shape, seed, device)`` and
takes CUDA tensors in ``reference``. What NumPy lacks is bits there, and the reference takes either.
"""

import importlib
from functools import cache
from typing import Any

from graders.errors import GraderVoid
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
    """Whether this reference does its work on that device, a GPU's UUID; it is then in use.

    Raises GraderVoid.
    """
    if device == "cpu" or not getattr(reference, "ON_DEVICE", False):
        return False
    use(device)
    return True


def use(uuid: str) -> int:
    """Let "cuda" mean this GPU in this thread from now on; its number. Raises GraderVoid.

    Torch's current device belongs to a thread, and another grade may have changed it: only which
    number the GPU has is remembered.
    """
    number = _number(uuid)
    torch().cuda.set_device(number)
    return number


@cache
def _number(uuid: str) -> int:
    """What torch calls the GPU in this process, which is a grader of it from here on."""
    cuda = torch().cuda
    for number in range(cuda.device_count()):
        if str(cuda.get_device_properties(number).uuid) in uuid:
            join(uuid)
            return number
    raise GraderVoid(
        f"torch cannot use GPU {uuid} in this process: see CUDA_VISIBLE_DEVICES, and "
        "`orchestrator doctor`"
    )


@cache
def torch() -> Any:
    """The module; only GPU hosts have it. Raises GraderVoid."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise GraderVoid(f"references of GPU tasks need torch here: {error}") from error
