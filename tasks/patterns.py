"""What generated inputs look like, and the numbers that they are drawn with.

===================  ===============================================================================
pattern              the chosen inputs
===================  ===============================================================================
drawn                as they were drawn (other sizes, views and sequences still apply)
ties                 few levels, many equal
clusters             two heaps, equal but for their last digits
late outlier         one large value a row, in its second half
lone outlier         one large value in all, in the last quarter
zero rows, zero      some rows of zeros; nothing but zeros
signed zeros         half of the values are zeros of either sign
mixed magnitudes     rows of scales from a thousandth to ten
negative             all below zero
constant rows        each row one value
constant             all one value
ascending            each row sorted
next to constants    values at and just beside the constants of the source
as large as          the largest magnitude is at, or just beside, a constant of the source
===================  ===============================================================================
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

ORDINARY = (0.5, 1.0, 2.0, 1e-3, 10.0, 100.0)
"""What stands for the constants of a source that has none: thresholds that people think of."""

Value = TypeVar("Value")


class Draws:
    """Numbers of one case, from a generator that only its key and a counter determine."""

    def __init__(self, seed: int, number: int) -> None:
        self._bits = np.random.Philox(key=np.array([seed, number], np.uint64))

    def below(self, limit: int) -> int:
        """An integer from 0 to ``limit`` - 1."""
        return int(self._bits.random_raw()) * limit >> 64

    def pick(self, options: Sequence[Value]) -> Value:
        """One of them."""
        return options[self.below(len(options))]

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """float64 in [0, 1)."""
        raw = np.asarray(self._bits.random_raw(math.prod(shape)), np.uint64)
        return (raw >> np.uint64(11)).reshape(shape) * 2.0**-53


Pattern = Callable[[Draws, np.ndarray, float, Sequence[float]], np.ndarray]


def _rows(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, values.shape[-1] if values.ndim else 1)


def _drawn(_d: Draws, values: np.ndarray, _s: float, _h: Sequence[float]) -> np.ndarray:
    return values


def _ties(_d: Draws, values: np.ndarray, scale: float, _h: Sequence[float]) -> np.ndarray:
    return np.round(values / scale) * scale


def _clusters(_d: Draws, values: np.ndarray, scale: float, _h: Sequence[float]) -> np.ndarray:
    return np.where(values < 0, -2.0, 2.0) * scale + 0.01 * values


def _late_outlier(d: Draws, values: np.ndarray, scale: float, _h: Sequence[float]) -> np.ndarray:
    for row in _rows(values):
        half = len(row) // 2
        row[half + d.below(len(row) - half)] = d.pick((-8.0, 8.0, 12.0)) * scale
    return values


def _lone_outlier(d: Draws, values: np.ndarray, scale: float, _h: Sequence[float]) -> np.ndarray:
    begin = 3 * values.size // 4
    values.reshape(-1)[begin + d.below(values.size - begin)] = d.pick((-12.0, 12.0)) * scale
    return values


def _zero_rows(d: Draws, values: np.ndarray, _s: float, _h: Sequence[float]) -> np.ndarray:
    rows = _rows(values)
    rows[d.uniform((len(rows),)) < 0.5] = 0
    rows[d.below(len(rows))] = 0
    return values


def _zero(_d: Draws, values: np.ndarray, _s: float, _h: Sequence[float]) -> np.ndarray:
    return np.zeros_like(values)


def _signed_zeros(d: Draws, values: np.ndarray, _s: float, _h: Sequence[float]) -> np.ndarray:
    chance = d.uniform(values.shape)
    return np.where(chance < 0.25, 0.0, np.where(chance < 0.5, -0.0, values))


def _mixed(d: Draws, values: np.ndarray, _s: float, _h: Sequence[float]) -> np.ndarray:
    rows = _rows(values)
    rows *= 10.0 ** np.floor(5 * d.uniform((len(rows), 1)) - 3)
    return values


def _negative(_d: Draws, values: np.ndarray, _s: float, _h: Sequence[float]) -> np.ndarray:
    below: np.ndarray = -np.abs(values)
    return below


def _constant_rows(_d: Draws, values: np.ndarray, _s: float, _h: Sequence[float]) -> np.ndarray:
    rows = _rows(values)
    rows[:] = rows[:, :1].copy()
    return values


def _constant(d: Draws, values: np.ndarray, scale: float, _h: Sequence[float]) -> np.ndarray:
    return np.full_like(values, scale * (2 * float(d.uniform((1,))[0]) - 1))


def _ascending(_d: Draws, values: np.ndarray, _s: float, _h: Sequence[float]) -> np.ndarray:
    _rows(values).sort(axis=-1)
    return values


def _beside(d: Draws, constant: float) -> float:
    """A constant, or a value just above or below it, of either sign."""
    return d.pick((1.0, -1.0)) * constant * (1 + d.pick((0.0, 1e-6, -1e-6, 1e-2, -1e-2)))


def _next_to(d: Draws, values: np.ndarray, _s: float, hints: Sequence[float]) -> np.ndarray:
    flat = values.reshape(-1)
    for n in np.flatnonzero(d.uniform(flat.shape) < 0.2):
        flat[n] = _beside(d, d.pick(hints))
    return values


def _as_large_as(d: Draws, values: np.ndarray, _s: float, hints: Sequence[float]) -> np.ndarray:
    largest = float(np.abs(values).max(initial=0.0))
    return values * (abs(_beside(d, d.pick(hints))) / largest) if largest else values


PATTERNS: dict[str, Pattern] = {
    "drawn": _drawn,
    "ties": _ties,
    "late outlier": _late_outlier,
    "mixed magnitudes": _mixed,
    "next to constants": _next_to,
    "zero rows": _zero_rows,
    "clusters": _clusters,
    "negative": _negative,
    "as large as": _as_large_as,
    "constant rows": _constant_rows,
    "lone outlier": _lone_outlier,
    "ascending": _ascending,
    "signed zeros": _signed_zeros,
    "constant": _constant,
    "zero": _zero,
}
"""By name, in the order in which a plan uses them."""
