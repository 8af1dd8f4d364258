"""Errors of grading.

GraderError
├── SubmissionFailed   typed failure of the submission: carries a GradeResult
└── GraderVoid         our failure: the machine, a tool, contention

``graders.wire.WireBroken`` (standard library only) becomes a SubmissionFailed.
"""

from transcripts.words import GradeResult


class GraderError(Exception):
    """Base of everything that graders raise on purpose."""


class SubmissionFailed(GraderError):
    """The submission failed in a way the grade vocabulary has a word for."""

    def __init__(self, result: GradeResult, message: str) -> None:
        super().__init__(message)
        self.result = result


class GraderVoid(GraderError):
    """The measurement is void: the infrastructure failed, and the model is not to blame."""
