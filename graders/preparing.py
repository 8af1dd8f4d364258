"""What of a grade can be done while another submission is being measured.

On a CPU-only host that is the static part alone: is anything handed in, does a file offer the
interface, is something forbidden, is the language accepted. Whatever runs code would take a core
from the measurement that goes on, so building and correctness wait for their turn.
"""

from dataclasses import dataclass

from graders.base import GradeRequest
from graders.candidate import entry_of
from graders.errors import SubmissionFailed
from graders.language import examine_files
from graders.sources import closure, native_texts


@dataclass(frozen=True)
class Prepared:
    """Opaque to callers: hand it to `RefereeGrader.grade`, or close it."""

    failure: SubmissionFailed | None = None

    def check(self) -> None:
        """Raises SubmissionFailed for what was found already."""
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Give up what it holds; nothing yet."""


def prepare(request: GradeRequest) -> Prepared:
    """The static part of a grade. Raises nothing: the grade meets other failures again."""
    try:
        files = closure(request.submission, entry_of(request))
        examine_files(request.task, files, request.device, native_texts(request.submission))
    except SubmissionFailed as failure:
        return Prepared(failure)
    except Exception:  # noqa: BLE001 - the grade comes to it in its turn and records it
        return Prepared()
    return Prepared()
