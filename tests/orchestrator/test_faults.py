"""Exceptions become outcomes by their type."""

import pytest

from orchestrator.faults import StopRequested, outcome_of
from orchestrator.models import errors as models
from sandboxes import errors as sandboxes
from transcripts import errors as archives
from transcripts.words import End


@pytest.mark.parametrize(
    ("error", "end", "reason"),
    [
        (StopRequested("x"), End.INTERRUPTED, "stop_requested"),
        (models.Interrupted("x"), End.INTERRUPTED, "stop_requested"),
        (models.RateLimited("x"), End.PROVIDER_FAULT, "rate_limit"),
        (models.DroppedStream("x"), End.PROVIDER_FAULT, "dropped_stream"),
        (models.BadKey("x"), End.PROVIDER_FAULT, "bad_key"),
        (models.ContextOverflow("x"), End.LIMIT, "context"),
        (sandboxes.SandboxGone("x"), End.INFRA_FAULT, "SandboxGone"),
        (archives.ArchiveFull("x"), End.INFRA_FAULT, "disk_full"),
        (archives.ClaimLost("x"), End.INTERRUPTED, "claim_lost"),
        (archives.ClaimHeld("x"), End.INTERRUPTED, "claim_held"),
        (archives.AlreadySealed("x"), End.INTERRUPTED, "already_sealed"),
        (archives.ArchiveReadOnly("x"), End.INFRA_FAULT, "ArchiveReadOnly"),
        (archives.Corrupt("x"), End.INFRA_FAULT, "Corrupt"),
        (OSError("x"), End.INFRA_FAULT, "os_error"),
    ],
)
def test_each_fault_has_its_end(error: Exception, end: End, reason: str) -> None:
    outcome = outcome_of(error)
    assert outcome is not None
    assert (outcome.end, outcome.reason) == (end, reason)


def test_infrastructure_is_always_retryable() -> None:
    for error in (models.ServerError("x"), sandboxes.SandboxStartFailed("x"), StopRequested("x")):
        outcome = outcome_of(error)
        assert outcome is not None
        assert outcome.end.retryable


def test_a_defect_of_ours_has_no_outcome() -> None:
    assert outcome_of(ValueError("a bug")) is None
