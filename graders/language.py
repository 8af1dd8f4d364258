"""The language of a submission and what it may not use, from its import closure.

First form: from what is written. On a GPU the ledger of what ran will decide instead.
"""

import ast
import re

from graders.candidate import Candidate
from graders.errors import SubmissionFailed
from graders.sources import SourceFile, closure
from tasks.spec import Task
from transcripts.words import GradeResult

_C_LOADERS = (
    "ctypes.CDLL",
    "ctypes.cdll.LoadLibrary",
    "ctypes.PyDLL",
    "numpy.ctypeslib.load_library",
)
_CUDA_BUILDERS = ("load_inline", "cpp_extension.load", "RawKernel", "RawModule", "nvrtc")
_CUDA_KERNEL = re.compile(r"__global__\s+\w")


def examine(candidate: Candidate) -> str:
    """The language. Raises SubmissionFailed for what the task forbids."""
    task, entry = candidate.task, candidate.entry
    return examine_files(task, closure(candidate.place.submission, entry), candidate.device)


def examine_files(task: Task, files: list[SourceFile], device: str) -> str:
    """`examine`, of an import closure that has been read."""
    refuse_forbidden(task, files)
    spoken = language(files, device)
    refuse_language(task, spoken)
    return spoken


def language(files: list[SourceFile], device: str) -> str:
    """``cuda_raw``, ``triton``, ``c``, ``eager`` (torch operations) or ``numpy``.

    A submission for both kinds of device is named after what can have run on this one.
    """
    modules = {module.partition(".")[0] for file in files for module, _ in file.imports()}
    called = [name for file in files for name, _ in file.calls()]
    builds = any(name.endswith(_CUDA_BUILDERS) for name in called)
    on_gpu = device != "cpu"
    if on_gpu and builds and any(_has_kernel(file) for file in files):
        return "cuda_raw"
    if on_gpu and "triton" in modules and any(_has_jit(file) for file in files):
        return "triton"
    if any(name in _C_LOADERS or name.startswith("ctypes.cdll.") for name in called):
        return "c"
    return "eager" if on_gpu and "torch" in modules else "numpy"


def refuse_forbidden(task: Task, files: list[SourceFile]) -> None:
    """Raises SubmissionFailed, ``forbidden``, with file and line."""
    for file in files:
        for module, line in file.imports():
            if (
                module.partition(".")[0] in task.forbidden_imports
                or module in task.forbidden_imports
            ):
                raise SubmissionFailed(
                    GradeResult.FORBIDDEN, f"{file.path}:{line} imports `{module}`"
                )
        for name, line in file.calls():
            if any(_is_call_of(name, forbidden) for forbidden in task.forbidden_calls):
                raise SubmissionFailed(GradeResult.FORBIDDEN, f"{file.path}:{line} calls `{name}`")


def refuse_language(task: Task, spoken: str) -> None:
    """Raises SubmissionFailed, ``language``."""
    if task.languages and spoken not in task.languages:
        accepted = ", ".join(task.languages)
        raise SubmissionFailed(
            GradeResult.LANGUAGE, f"written in `{spoken}`; the task accepts {accepted}"
        )


def _is_call_of(name: str, forbidden: str) -> bool:
    """``torch.topk`` forbids that name; ``.topk`` that method of anything."""
    if forbidden.startswith("."):
        return name.endswith(forbidden)
    return name == forbidden or name.startswith(forbidden + ".")


def _has_kernel(file: SourceFile) -> bool:
    return any(
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _CUDA_KERNEL.search(node.value) is not None
        for node in ast.walk(file.tree)
    )


def _has_jit(file: SourceFile) -> bool:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                target = decorator.func if isinstance(decorator, ast.Call) else decorator
                if file.dotted(target) in ("triton.jit", "triton.autotune"):
                    return True
    return False
