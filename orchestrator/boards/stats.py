"""Small statistics for boards and rounds: closed forms, and one bootstrap with a fixed seed.

All intervals are 95%. Nothing here draws from a clock or a global generator: the same numbers in,
the same numbers out.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import NamedTuple

CONFIDENCE = 0.95
_BOOTSTRAP_SEED = 20260101  # any constant: a board must give the same bytes twice
_BOOTSTRAP_RESAMPLES = 10_000


class Interval(NamedTuple):
    """A closed 95% interval."""

    low: float
    high: float

    def overlaps(self, other: "Interval") -> bool:
        """True when the two share a point: then a difference is a statistical tie."""
        return self.low <= other.high and other.low <= self.high


def wilson(successes: int, trials: int) -> Interval:
    """Wilson's score interval of a proportion (Wilson 1927); sound for few trials and at 0 and 1.

    Raises ValueError for no trials or more successes than trials.
    """
    _check_counts(successes, trials)
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share = successes / trials
    scale = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == trials else middle + half
    return Interval(low, high)


def pass_at_k(attempts: int, passes: int, k: int) -> float:
    """Chance that at least one of ``k`` attempts passes; unbiased (Chen et al. 2021, eq. 1)."""
    _check_counts(passes, attempts, k)
    return float(1 - Fraction(math.comb(attempts - passes, k), math.comb(attempts, k)))


def pass_hat_k(attempts: int, passes: int, k: int) -> float:
    """Chance that all of ``k`` attempts pass, `pass^k`; unbiased (Yao et al. 2024, tau-bench)."""
    _check_counts(passes, attempts, k)
    return float(Fraction(math.comb(passes, k), math.comb(attempts, k)))


def bootstrap_mean(values: Sequence[float]) -> Interval:
    """Percentile bootstrap interval of the mean. Raises ValueError for no values."""
    if not values:
        raise ValueError("no values to take the mean of")
    import numpy as np  # noqa: PLC0415 - start-up time

    sample = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(_BOOTSTRAP_SEED).integers(
        0, len(sample), size=(_BOOTSTRAP_RESAMPLES, len(sample))
    )
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(sample[draws].mean(axis=1), (tail, 1 - tail))
    return Interval(float(low), float(high))


def sign_test(wins: int, losses: int) -> float:
    """Two-sided exact p-value that wins and losses are a fair coin; ties are left out before."""
    trials = wins + losses
    if trials == 0:
        return 1.0
    tail = sum(math.comb(trials, i) for i in range(min(wins, losses) + 1))
    return min(1.0, float(Fraction(2 * tail, 2**trials)))


def geometric_mean(values: Sequence[float]) -> float | None:
    """The geometric mean of positive values; None where there are none or one is not positive."""
    if not values or any(value <= 0 for value in values):
        return None
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean, independent of the order. Raises ValueError for no values."""
    if not values:
        raise ValueError("no values to take the mean of")
    return math.fsum(values) / len(values)


def half_up(value: float | Fraction) -> int:
    """Rounded to the nearest whole number, halves upwards: 0.5 -> 1, 2.5 -> 3, -0.5 -> 0."""
    return math.floor(Fraction(value) + Fraction(1, 2))


def _check_counts(successes: int, trials: int, k: int = 1) -> None:
    if not 0 <= successes <= trials or not 1 <= k <= trials:
        raise ValueError(f"{successes} of {trials} at k={k} is no sample")
