"""Which word of the grade an ending of a worker is.

=====================================================  ==========
what the referee sees                                  word
=====================================================  ==========
``build`` answered by an exception                     import (memory for MemoryError, build for a
                                                       compiler that failed)
``setup`` or ``call`` answered by an exception         crash (memory, import, build as above;
                                                       illegal_access by CUDA's own words)
a compiler that our image lacks                        void, whoever tells of it
the kernel killed it for its group's memory            memory
more shared memory than memory is allowed              memory
an output that cannot be copied, or exceeds its room   wrong
silence past the deadline                              timeout
the process ended or closed its pipe                   crash
a frame that is none, was not asked for, or lies       tampered
=====================================================  ==========
"""

import errno
import os
import reprlib
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graders.errors import GraderVoid, SubmissionFailed, readable
from transcripts.words import GradeResult

BROKEN = {
    "closed": GradeResult.CRASH,
    "garbage": GradeResult.TAMPERED,
    "oversize": GradeResult.TAMPERED,
    "timeout": GradeResult.TIMEOUT,
}
"""Word by ``WireBroken.how``."""

_FRAMES = 4  # of a traceback, the last
_RAISED = {"import": GradeResult.IMPORT, "output": GradeResult.WRONG}
_BY_EXCEPTION = {
    "MemoryError": GradeResult.MEMORY,
    "OutOfMemoryError": GradeResult.MEMORY,
    "ImportError": GradeResult.IMPORT,
}
_COMPILERS_FAILED = {"CalledProcessError", "CompilationError", "PTXASError", "CompileError"}
"""Exceptions of subprocess, Triton, its assembler and setuptools; also as a cause of others."""

_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
_READ_ONLY_HINT = (
    "; the submission's folder is read-only when it is graded: build into the folder that "
    "TORCH_EXTENSIONS_DIR, TRITON_CACHE_DIR or XDG_CACHE_HOME names"
)
_COMPILER_TAIL = 1000

_ILLEGAL = ("an illegal memory access was encountered", "misaligned address")
_STICKY = (*_ILLEGAL, "device-side assert triggered", "unspecified launch failure")
"""What CUDA calls errors after which a process gets nothing else from it (cudaGetErrorString).
torch and Triton raise them as a RuntimeError, so that only the words tell."""


def ending(code: int | None) -> str:
    """How a process that did not answer ended. Jails report a signal as 128 + its number."""
    if code is None:
        return "it closed its pipe to the referee and lives on"
    number = -code if code < 0 else code - 128
    if number > 0 and number in {s.value for s in signal.Signals}:
        return f"killed by {signal.Signals(number).name} before it answered"
    return f"exited with code {code} before it answered"


@dataclass(frozen=True)
class Surroundings:
    """What the referee knows itself of a worker that raised."""

    printed: str
    folder: str  # the submission's, as it is for the worker
    missing_tool: Callable[[str], str | None]  # a tool that a text names and that is not there


def raised(answer: dict[str, Any], world: Surroundings) -> SubmissionFailed | GraderVoid:
    """The failure that an error frame tells of."""
    kind = text_of(answer["error"])[:20]
    text, where = text_of(answer.get("text")), "; ".join(_texts(answer.get("where")))
    told = f"{kind}: {text[:600]}" + (f" ({where})"[:400] if where else "")
    word = _word(answer, kind, world)
    said = f"{text}\n{world.printed}" if word is GradeResult.BUILD else text
    if kind != "output" and (tool := world.missing_tool(said)):
        why = f"the submission builds with {tool}, which is not installed here"
        return GraderVoid(f"{why} (`orchestrator doctor` says what is missing); {readable(told)}")
    if word is not GradeResult.BUILD:
        return SubmissionFailed(word, told)
    if _is_read_only(answer, world) or "Read-only file system" in said:
        told += _READ_ONLY_HINT
    return SubmissionFailed(word, f"{told}\n{world.printed[-_COMPILER_TAIL:]}".rstrip())


def is_sticky(answer: dict[str, Any]) -> bool:
    """True for an error frame after which all further calls of its process would fail too."""
    return any(words in text_of(answer.get("text")) for words in _STICKY)


def _word(answer: dict[str, Any], kind: str, world: Surroundings) -> GradeResult:
    names = _texts(answer.get("bases"))
    word = _RAISED.get(kind, GradeResult.CRASH)
    for name, special in _BY_EXCEPTION.items():
        word = special if name in names else word
    if any(words in text_of(answer.get("text")) for words in _ILLEGAL):
        word = GradeResult.ILLEGAL_ACCESS
    failed = _COMPILERS_FAILED.intersection([*names, *_texts(answer.get("causes"))])
    return GradeResult.BUILD if failed or _is_read_only(answer, world) else word


def _texts(values: object) -> list[str]:
    return [text_of(value) for value in values] if isinstance(values, list) else []


def _is_read_only(answer: dict[str, Any], world: Surroundings) -> bool:
    """It tried to write beside itself."""
    path = os.path.normpath(text_of(answer.get("file", "")))
    return answer.get("errno") in _NOT_WRITABLE and path.startswith(f"{world.folder}/")


def text_of(value: object) -> str:
    """A part of a frame as text; what should be text and is none, however deep, is shown short."""
    return value if isinstance(value, str) else reprlib.repr(value)


def defect(error: Exception) -> str:
    """The words of a grade that failed by an error of our own which nobody foresaw."""
    trace = "".join(traceback.format_tb(error.__traceback__)[-_FRAMES:])
    what = "".join(traceback.format_exception_only(error)).strip()
    return readable(f"a defect of the grader, not of the submission: {what}\n{trace}")
