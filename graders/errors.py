"""Errors of grading.

GraderError
├── SubmissionFailed   typed failure of the submission: carries a GradeResult
└── GraderVoid         our failure: the machine, a tool, contention

``graders.worker.wire.WireBroken`` (standard library only) becomes a SubmissionFailed.
"""

import unicodedata

from transcripts.words import GradeResult


class GraderError(Exception):
    """Base of everything that graders raise on purpose."""


class SubmissionFailed(GraderError):
    """The submission failed in a way the grade vocabulary has a word for."""

    def __init__(self, result: GradeResult, message: str) -> None:
        super().__init__(readable(message))
        self.result = result


def readable(text: str) -> str:
    """A text of a submission as it can be stored and printed: what is no character becomes `?`.

    That is lone surrogates, which no encoding takes, and controls, which terminals obey.
    """
    return "".join("?" if _is_no_text(c) else c for c in text)


def _is_no_text(c: str) -> bool:
    return c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cs")


class GraderVoid(GraderError):
    """The measurement is void: the infrastructure failed, and the model is not to blame."""
