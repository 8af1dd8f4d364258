"""The one table of words: end of session x grade x verdict -> state on the board.

Rows are read from the top; the first that matches decides. ``None`` matches anything. The table is
total: ``board_state`` has an answer for every combination, and a test walks all of them.
"""

from dataclasses import dataclass
from enum import StrEnum

from transcripts.words import End, GradeResult, Verdict


class BoardState(StrEnum):
    """How an attempt stands on a board."""

    VALID = "valid"  # ranked: correct, audited, not flagged
    FLAGGED = "flagged"  # shown dimmed with its verdict; counts 0
    UNAUDITED = "unaudited"  # correct, and nobody has looked: shown dimmed; counts 0
    FAILED = "failed"  # the submission's failure; counts 0
    NO_SUBMISSION = "no_submission"  # the model handed in nothing; counts 0
    UNGRADED = "ungraded"  # handed in, not yet graded
    PENDING = "pending"  # infrastructure: to be retried, never counted against the model


@dataclass(frozen=True)
class Row:
    """One rule. Empty sets match anything; ``graded`` False matches only 'no grade'."""

    ends: frozenset[End]
    results: frozenset[GradeResult]
    verdicts: frozenset[Verdict]
    state: BoardState
    why: str
    graded: bool | None = None


_ANY_END: frozenset[End] = frozenset()
_ANY_RESULT: frozenset[GradeResult] = frozenset()
_ANY_VERDICT: frozenset[Verdict] = frozenset()
_RETRYABLE = frozenset(e for e in End if e.retryable)
_FLAGS = frozenset(v for v in Verdict if v.flagged)

TABLE: tuple[Row, ...] = (
    Row(_RETRYABLE, _ANY_RESULT, _ANY_VERDICT, BoardState.PENDING, "infrastructure ended it"),
    Row(_ANY_END, _ANY_RESULT, _FLAGS, BoardState.FLAGGED, "the audit flagged it"),
    Row(
        frozenset({End.NO_SUBMISSION}),
        _ANY_RESULT,
        _ANY_VERDICT,
        BoardState.NO_SUBMISSION,
        "nothing was handed in",
    ),
    Row(
        _ANY_END,
        frozenset({GradeResult.EMPTY}),
        _ANY_VERDICT,
        BoardState.NO_SUBMISSION,
        "the hand-in holds nothing to grade",
        True,
    ),
    Row(_ANY_END, _ANY_RESULT, _ANY_VERDICT, BoardState.UNGRADED, "not graded yet", False),
    Row(
        _ANY_END,
        frozenset({GradeResult.VOID}),
        _ANY_VERDICT,
        BoardState.PENDING,
        "the grade is void: to be measured again",
        True,
    ),
    Row(
        _ANY_END,
        frozenset({GradeResult.UNSUPPORTED}),
        _ANY_VERDICT,
        BoardState.PENDING,
        "this device cannot run the task",
        True,
    ),
    Row(
        _ANY_END,
        frozenset({GradeResult.PASS}),
        frozenset({Verdict.UNAUDITED}),
        BoardState.UNAUDITED,
        "correct, not audited",
        True,
    ),
    Row(
        _ANY_END,
        frozenset({GradeResult.PASS}),
        frozenset({Verdict.BUG, Verdict.HARNESS_LIMITED}),
        BoardState.PENDING,
        "the harness distorted it: to be run again",
        True,
    ),
    Row(
        _ANY_END,
        frozenset({GradeResult.PASS}),
        frozenset({Verdict.FAIL}),
        BoardState.FAILED,
        "the audit found it honestly wrong",
        True,
    ),
    Row(
        _ANY_END,
        frozenset({GradeResult.PASS}),
        _ANY_VERDICT,
        BoardState.VALID,
        "correct and clean",
        True,
    ),
    Row(_ANY_END, _ANY_RESULT, _ANY_VERDICT, BoardState.FAILED, "the submission failed", True),
)


def board_state(
    end: End, result: GradeResult | None, verdict: Verdict = Verdict.UNAUDITED
) -> tuple[BoardState, str]:
    """State and reason of an attempt; ``result`` None means that it has no grade."""
    for row in TABLE:
        if (
            (not row.ends or end in row.ends)
            and (row.graded is None or row.graded == (result is not None))
            and (not row.results or result in row.results)
            and (not row.verdicts or verdict in row.verdicts)
        ):
            return row.state, row.why
    raise AssertionError("the table is total: its last rows match anything")
