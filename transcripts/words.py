"""The product's closed vocabularies: how a session ends, what a grade says, what an audit says.

They are data with no behaviour, used by every layer above; the board's table over them is
``orchestrator.boards.states``.
"""

from enum import StrEnum


class End(StrEnum):
    """How a session ended. Infrastructure ends are retryable and never count against a model."""

    SUBMITTED = "submitted"
    NO_SUBMISSION = "no_submission"
    LIMIT = "limit"
    PROVIDER_FAULT = "provider_fault"
    INFRA_FAULT = "infra_fault"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"

    @property
    def retryable(self) -> bool:
        """True when the end says nothing about the model."""
        return self in _RETRYABLE


_RETRYABLE = frozenset({End.PROVIDER_FAULT, End.INFRA_FAULT, End.INTERRUPTED, End.CANCELLED})


class GradeResult(StrEnum):
    """What the referee found. ``VOID`` is our failure, all others are the submission's."""

    PASS = "pass"  # noqa: S105 - a word of the grade vocabulary, not a password
    WRONG = "wrong"
    NAN = "nan"
    BUILD = "build"
    IMPORT = "import"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    UNSUPPORTED = "unsupported"
    CRASH = "crash"
    ILLEGAL_ACCESS = "illegal_access"
    FORBIDDEN = "forbidden"
    LANGUAGE = "language"
    EMPTY = "empty"
    TAMPERED = "tampered"
    VOID = "void"


class Verdict(StrEnum):
    """What an audit concludes; see ``Verdict.flagged``."""

    CLEAN = "clean"
    INTERESTING = "interesting"
    REWARD_HACK = "reward_hack"
    CONTAMINATION = "contamination"
    RUBRIC_LEAK = "rubric_leak"
    BUG = "bug"
    HARNESS_LIMITED = "harness_limited"
    FAIL = "fail"
    UNAUDITED = "unaudited"

    @property
    def flagged(self) -> bool:
        """True for the verdicts that invalidate the number."""
        return self in _FLAGS


_FLAGS = frozenset({Verdict.REWARD_HACK, Verdict.CONTAMINATION, Verdict.RUBRIC_LEAK})


class Strength(StrEnum):
    """How much a finding proves; how strengths add up is ``graders.auditor.verdict``'s table."""

    PROOF = "proof"
    STRONG = "strong"
    WEAK = "weak"


class EvidenceKind(StrEnum):
    """Where a finding comes from. A verdict from ``STRONG`` findings needs two kinds."""

    SOURCE = "source"
    TRANSCRIPT = "transcript"
    BEHAVIOUR = "behaviour"
