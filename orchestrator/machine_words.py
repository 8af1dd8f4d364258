"""What a session is told of the machine that it works on, behind the words of its task.

A request is the same on every machine; this paragraph is made for the device when the session
starts, and the transcript keeps both as they were said. It names what is there, never how fast it
is.
"""

import os
import re

from graders import machine
from tasks.spec import Task

_VERSION = re.compile(r"(?:cuda_)?(\d+(?:\.\d+)*)")
_GIB = 1024  # MiB
_TOOLS = {  # language of a task -> what `graders.machine.versions` calls its tool, and its name
    "numpy": ("numpy", "NumPy"),
    "c": ("gcc", "gcc"),
    "triton": ("triton", "Triton"),
    "cuda_raw": ("nvcc", "nvcc"),
    "ptx": ("nvcc", "nvcc"),
    "cutlass": ("nvcc", "nvcc"),
}


def about_machine(task: Task, device: str) -> str:
    """One paragraph; ``device`` is ``cpu`` or a GPU's UUID."""
    found = dict(machine.versions("cpu" if device == "cpu" else "cuda"))
    if device != "cpu":
        return f"You are on a machine with {_gpu(device)}; {_tools(task, found)}."
    where = f"{os.cpu_count() or 1} cores of {machine.cpu_name() or 'a CPU'}"
    if task.interface.framework != "torch":
        return f"You are on a machine with {where}; {_tools(task, found)}."
    return (
        f"You are on a machine without a GPU for now ({where}), so this is a rehearsal: tensors "
        "are on the CPU, kernels in Triton run through its interpreter, and `check` tries the "
        "small sizes only. What we want is still the code for a GPU."
    )


def _gpu(uuid: str) -> str:
    gpu = next((gpu for gpu in machine.gpus() if gpu.uuid == uuid), None)
    if gpu is None:
        return "an NVIDIA GPU"
    facts = [f"compute capability {gpu.capability}"] if gpu.capability else []
    if gpu.memory_mib.isdigit():
        facts.append(f"{int(gpu.memory_mib) / _GIB:.0f} GiB of memory")
    return f"one {gpu.name}" + (f" ({', '.join(facts)})" if facts else "")


def _tools(task: Task, found: dict[str, str]) -> str:
    """Of the languages that the task accepts, those whose tools are there."""
    wanted = [("python", "Python")]
    wanted += [("torch", "torch")] if "torch" in found else []
    wanted += [_TOOLS[language] for language in task.languages if language in _TOOLS]
    there = [
        f"{name} {version[1]}"
        for key, name in dict.fromkeys(wanted)
        if (version := _VERSION.search(found.get(key, "")))
    ]
    return f"there is {', '.join(there)}"
