"""The language of a submission and what it may not use, from its import closure.

On a CPU this decides. On a GPU what ran decides (``graders.ledger``): there the source refuses only
what could not come out otherwise, and answers where no profile can be had.
"""

from collections.abc import Sequence

from graders.candidate import Candidate
from graders.errors import SubmissionFailed
from graders.kernel_names import Authored, authored_of
from graders.sources import SourceFile, closure, native_texts
from tasks.spec import Task
from transcripts.words import GradeResult

_C_LOADERS = (
    "ctypes.CDLL",
    "ctypes.cdll.LoadLibrary",
    "ctypes.PyDLL",
    "numpy.ctypeslib.load_library",
)
_CUDA_BUILDERS = (
    *("load_inline", "cpp_extension.load", "_compile_kernel"),
    *("RawKernel", "RawModule", "nvrtc"),
)


def examine(candidate: Candidate) -> str:
    """The language by the source. Raises SubmissionFailed for what the task forbids."""
    task, place = candidate.task, candidate.place.submission
    files = closure(place, candidate.entry)
    return examine_files(task, files, candidate.device, native_texts(place))


def examine_files(
    task: Task, files: list[SourceFile], device: str, native: Sequence[str] = ()
) -> str:
    """`examine`, of an import closure that has been read, and of the C++ files beside it."""
    refuse_forbidden(task, files)
    authored = authored_of(files, native)
    # On a CPU a task of tensors is rehearsed, its kernels through Triton's interpreter.
    runs_as = "cuda" if task.interface.framework == "torch" else device
    spoken = _language(files, runs_as, authored)
    if device == "cpu" or authored.kinds.isdisjoint(task.languages):
        refuse_language(task, spoken)
    return spoken


def language(files: list[SourceFile], device: str, native: Sequence[str] = ()) -> str:
    """``cuda_raw``, ``cutlass``, ``triton``, ``c``, ``eager`` (torch operations) or ``numpy``.

    A submission for both kinds of device is named after what can have run on this one.
    """
    return _language(files, device, authored_of(files, native))


def _language(files: list[SourceFile], device: str, authored: Authored) -> str:
    modules = {module.partition(".")[0] for file in files for module, _ in file.imports()}
    called = [name for file in files for name, _ in file.calls()]
    on_gpu = device != "cpu"
    if on_gpu and any(name.endswith(_CUDA_BUILDERS) for name in called):
        for kind in ("cutlass", "cuda_raw"):
            if kind in authored.kinds:
                return kind
    if on_gpu and "triton" in authored.kinds:
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
