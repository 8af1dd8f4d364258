"""The one place that turns exceptions into outcomes: from types, never from prose."""

from orchestrator.models.errors import ContextOverflow, Interrupted, ModelError
from sandboxes.errors import SandboxError
from transcripts.errors import AlreadySealed, ArchiveError, ArchiveFull, ClaimHeld, ClaimLost
from transcripts.records import Outcome
from transcripts.words import End


class StopRequested(Exception):
    """The orchestrator was asked to stop; the session is left to be resumed."""


def outcome_of(error: Exception) -> Outcome | None:
    """How a session ended that raised ``error``; None when the error is a defect of ours."""
    for kind, end, reason in _TABLE:
        if isinstance(error, kind):
            return Outcome(end=end, reason=reason or _reason(error), message=str(error)[:500])
    return None


def _reason(error: Exception) -> str:
    return error.kind if isinstance(error, ModelError) else type(error).__name__


# Read from the top; a subclass stands before its base.
_TABLE: tuple[tuple[type[Exception], End, str], ...] = (
    (StopRequested, End.INTERRUPTED, "stop_requested"),
    (Interrupted, End.INTERRUPTED, "stop_requested"),
    (ContextOverflow, End.LIMIT, "context"),
    (ModelError, End.PROVIDER_FAULT, ""),
    (SandboxError, End.INFRA_FAULT, ""),
    (ArchiveFull, End.INFRA_FAULT, "disk_full"),
    (ClaimLost, End.INTERRUPTED, "claim_lost"),
    (ClaimHeld, End.INTERRUPTED, "claim_held"),
    (AlreadySealed, End.INTERRUPTED, "already_sealed"),
    (ArchiveError, End.INFRA_FAULT, ""),
    (OSError, End.INFRA_FAULT, "os_error"),
)
