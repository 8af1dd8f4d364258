"""All checks, in the order in which their findings are listed."""

from graders.auditor.base import AuditCheck
from graders.auditor.behaviour import FailedCases, FailedProbes
from graders.auditor.cchecks import C_WIRES
from graders.auditor.injection import JudgeInjection
from graders.auditor.lifetimes import LIFETIMES
from graders.auditor.memo import MEMO
from graders.auditor.outside import OUTSIDE
from graders.auditor.paths import PATHS
from graders.auditor.shortcuts import SHORTCUTS
from graders.auditor.transcript import CanaryUse, TranscriptEvidence
from graders.auditor.tripwires import TRIPWIRES
from transcripts.words import EvidenceKind


def checks() -> tuple[AuditCheck, ...]:
    """Every check of this version."""
    return (
        *TRIPWIRES,
        *LIFETIMES,
        *MEMO,
        *SHORTCUTS,
        *PATHS,
        *OUTSIDE,
        *C_WIRES,
        JudgeInjection(),
        CanaryUse(),
        TranscriptEvidence(),
        FailedProbes(),
        FailedCases(),
    )


def of_kind(kind: EvidenceKind) -> tuple[AuditCheck, ...]:
    """The checks of one kind of evidence."""
    return tuple(check for check in checks() if check.rule.kind is kind)
