"""What a worker finds around it: packages, tools, environment, caches, limits."""

import re
import secrets
import shutil
from dataclasses import replace
from functools import lru_cache

from graders.processes import OUR_CORES
from sandboxes import cgroup
from sandboxes.base import Limits
from sandboxes.cgroup import Cgroup
from sandboxes.toolchain import SITE, Toolchain, host_toolchain
from tasks.spec import Task

GPU_PACKAGES = ("numpy", "torch", "triton")
_GPU_OPTIONAL = ("cuda-bindings", "ninja", "setuptools")
"""torch's driver bindings, and what `torch.utils.cpp_extension` builds with."""

CPU_PIDS, GPU_PIDS = 64, 512  # CUDA, ninja and compilers start threads
CUDA_BYTES = 12 << 30
"""Host memory beside a task's own for torch's libraries, a CUDA context and compilers: an
allowance, not a measurement."""

_CACHES = {
    "CUDA_CACHE_PATH": "driver",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TRITON_CACHE_DIR": "triton",
    "XDG_CACHE_HOME": "other",
}
_COMPILERS = ("cc", "gcc", "c++", "g++")
_GPU_COMPILERS = ("nvcc", "ninja")
_ALSO_CALLED = {"nvcc": "CUDA_HOME", "cc": "C compiler", "ninja": "Ninja"}
"""Other words in which tools tell that one of these is missing."""


def packages_of(task: Task, device: str) -> tuple[str, ...]:
    """What is importable for this task's code, in a session and in a worker."""
    packages = task.allowed_packages
    if device != "cpu" or task.interface.framework == "torch":
        packages = tuple(dict.fromkeys((*packages, *GPU_PACKAGES)))
    return packages


@lru_cache
def toolchain_of(packages: tuple[str, ...]) -> Toolchain:
    """What is mounted for these packages. Raises SandboxUnavailable."""
    return host_toolchain(packages, _GPU_OPTIONAL if "torch" in packages else ())


def limits(memory_bytes: int, device: str) -> Limits:
    """Caps of each process of a worker."""
    return Limits(memory_bytes=memory_bytes, pids=CPU_PIDS if device == "cpu" else GPU_PIDS)


def group(each: Limits, device: str) -> Cgroup | None:
    """A fresh cgroup with the caps of a worker as a whole; one that only counts, or None, where we
    may not make one."""
    more = 0 if device == "cpu" else CUDA_BYTES
    whole = replace(each, memory_bytes=each.memory_bytes + more, cpus=len(OUR_CORES) + 1)
    name = f"worker-{secrets.token_hex(8)}"
    made = cgroup.make(name, whole)
    if made is None:
        return cgroup.make_counting(name)
    made.die_as_one()
    return made


def caches(scratch: str) -> str:
    """The folder that compilers keep their results in."""
    return f"{scratch}/caches"


def environment(
    toolchain: Toolchain, site: str, mark: str, scratch: str, device: str
) -> dict[str, str]:
    """One BLAS thread: a CPU worker has one core. Triton's kernels are interpreted there."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    folders = dict.fromkeys(("HOME", "TMPDIR"), scratch)
    folders |= {name: f"{caches(scratch)}/{part}" for name, part in _CACHES.items()}
    fixed = {"PATH": toolchain.env["PATH"], "PYTHONPATH": site, "GRADING_MARK": mark}
    if device == "cpu":
        return fixed | threads | folders | of_device(toolchain, device)
    cuda = {name: toolchain.env[name] for name in ("CUDA_HOME",) if name in toolchain.env}
    return fixed | threads | folders | cuda | of_device(toolchain, device)


def of_device(toolchain: Toolchain, device: str) -> dict[str, str]:
    """Variables by which frameworks find the one GPU, or Triton its interpreter on a CPU."""
    if device != "cpu":
        return {"CUDA_VISIBLE_DEVICES": device}
    has_triton = any(mount.target == f"{SITE}/triton" for mount in toolchain.mounts)
    return {"TRITON_INTERPRET": "1"} if has_triton else {}


def missing_tool(text: str, packages: tuple[str, ...], device: str) -> str | None:
    """A compiler that this text names, that a worker should find, and that is not there for it.

    The text may be the submission's own words; that the tool is not there is looked up here.
    """
    toolchain = toolchain_of(packages)
    inside = {mount.target.rpartition("/")[2] for mount in toolchain.mounts}
    wanted = _COMPILERS if device == "cpu" else _COMPILERS + _GPU_COMPILERS
    for tool in wanted:
        names = "|".join(map(re.escape, (tool, _ALSO_CALLED.get(tool, tool))))
        if not re.search(rf"(?<![\w+-])({names})(?![\w+-])", text):
            continue
        if tool not in inside and shutil.which(tool, path=toolchain.env["PATH"]) is None:
            return tool
    return None
