"""Which word of the grade an ending of a worker is.

=====================================================  ==========
what the referee sees                                  word
=====================================================  ==========
``build`` answered by an exception                     import (memory for MemoryError, build for a
                                                       compiler that failed)
``setup`` or ``call`` answered by an exception         crash (memory, import, build as above)
an output that cannot be copied, or exceeds its room   wrong
silence past the deadline                              timeout
the process ended or closed its pipe                   crash
a frame that is none, was not asked for, or lies       tampered
=====================================================  ==========
"""

import reprlib
import signal
import traceback
from typing import Any

from graders.errors import SubmissionFailed, readable
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
    "CalledProcessError": GradeResult.BUILD,
    "ImportError": GradeResult.IMPORT,
}


def ending(code: int | None) -> str:
    """How a process that did not answer ended. Jails report a signal as 128 + its number."""
    if code is None:
        return "it closed its pipe to the referee and lives on"
    number = -code if code < 0 else code - 128
    if number > 0 and number in {s.value for s in signal.Signals}:
        return f"killed by {signal.Signals(number).name} before it answered"
    return f"exited with code {code} before it answered"


def raised(answer: dict[str, Any]) -> SubmissionFailed:
    """The failure that an error frame tells of."""
    bases = answer.get("bases")
    names = [text_of(base) for base in bases] if isinstance(bases, list) else []
    kind = text_of(answer["error"])[:20]
    word = _RAISED.get(kind, GradeResult.CRASH)
    for name, special in _BY_EXCEPTION.items():
        word = special if name in names else word
    where = answer.get("where")
    places = f" ({'; '.join(map(text_of, where))})" if isinstance(where, list) and where else ""
    return SubmissionFailed(word, f"{kind}: {text_of(answer.get('text'))[:600]}{places[:400]}")


def text_of(value: object) -> str:
    """A part of a frame as text; what should be text and is none, however deep, is shown short."""
    return value if isinstance(value, str) else reprlib.repr(value)


def defect(error: Exception) -> str:
    """The words of a grade that failed by an error of our own which nobody foresaw."""
    trace = "".join(traceback.format_tb(error.__traceback__)[-_FRAMES:])
    what = "".join(traceback.format_exception_only(error)).strip()
    return readable(f"a defect of the grader, not of the submission: {what}\n{trace}")
