"""Steps that failed in the submission, and the frames that tell of them."""

import os
import traceback
from typing import Any

Frame = dict[str, Any]
MOST_CAUSES, MOST_PLACES, MOST_TEXT = 5, 3, 2000


class Refused(Exception):
    """A step that failed in the submission: ``kind`` is a word of the wire."""

    def __init__(self, kind: str, error: BaseException) -> None:
        super().__init__(kind)  # `str(error)` is the submission's code
        self.kind, self.error = kind, error


def describe(refused: Refused) -> Frame:
    """The error frame of a failed step."""
    error = refused.error
    text = "".join(traceback.format_exception_only(error)).strip()
    where = traceback.extract_tb(error.__traceback__)[-MOST_PLACES:]
    places = [f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in where]  # noqa: PTH119
    answer: Frame = {
        "error": refused.kind,
        "bases": [base.__name__ for base in type(error).__mro__],
        "causes": causes(error),
        "text": text[-MOST_TEXT:],
        "where": places,
    }
    if isinstance(error, OSError) and isinstance(error.errno, int):
        answer |= {"errno": error.errno, "file": str(error.filename)}
    return answer


def causes(error: BaseException) -> list[str]:
    """Names of the types of the exceptions that this one was raised from."""
    found: list[str] = []
    cause = error.__cause__
    while cause is not None and len(found) < MOST_CAUSES:
        found.append(type(cause).__name__)
        cause = cause.__cause__
    return found
