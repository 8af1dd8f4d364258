"""The ranking rule of a board.

Valid passes, descending; then mean normalised performance over the full deck, descending. Equal on
both shares the rank, and the next rank counts everybody above (1, 1, 3).
"""

from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.boards.stats import mean

_DIGITS = 12  # differences below are noise of the summation, not of the work


class Merit(NamedTuple):
    """What ranks one entrant."""

    passes: int  # tasks with a valid attempt
    performance: float  # mean over the full deck of cell score / board best of that task, 0..1


def merit(shares: Sequence[float], passes: int) -> Merit:
    """An entrant's merit from its normalised score on every task of the deck, 0 where not valid."""
    return Merit(passes, round(mean(shares), _DIGITS) if shares else 0.0)


def normalised(score: float | None, best: float | None) -> float:
    """A valid cell's score as a share of the board's best of that task; the leader has 1.0."""
    if score is None or best is None:
        return 0.0
    return score / best if best > 0 else 1.0


def ranks(merits: Sequence[Merit]) -> list[int]:
    """The rank of each entrant, from 1; ties share it."""
    return [1 + sum(other > mine for other in merits) for mine in merits]
