"""How far two arrays of floats are apart, in float64, piece by piece.

Outputs of scored shapes have up to 4e8 elements: whole temporaries of float64 would be gigabytes
each, and most of the time of a grade. Pieces stay in a core's caches, and cores share them.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce

import numpy as np

PIECE = 1 << 17  # elements: 1 MiB of float64
MOST_THREADS = 8

Plain = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Difference:
    """Of flat arrays; the places are of the first largest, None where there is nothing."""

    size: int = 0
    strays: int = 0  # finite on one side only, or other infinities
    stray_at: int | None = None
    bad: int = 0  # beyond atol + rtol * |ref|
    bad_error: float = -1.0
    bad_at: int | None = None
    error: float = -1.0
    error_at: int | None = None
    relative: float = 0.0  # largest, where the reference is not zero
    error_squares: float = 0.0
    ref_squares: float = 0.0

    @property
    def rms_ratio(self) -> float | None:
        """Root mean square of the error over that of the reference; None for a zero reference."""
        return float(np.sqrt(self.error_squares / self.ref_squares)) if self.ref_squares else None

    def and_then(self, after: "Difference") -> "Difference":
        """Of this part and the part that follows it."""
        bad, error = self.bad_error >= after.bad_error, self.error >= after.error
        return Difference(
            size=self.size + after.size,
            strays=self.strays + after.strays,
            stray_at=after.stray_at if self.stray_at is None else self.stray_at,
            bad=self.bad + after.bad,
            bad_error=max(self.bad_error, after.bad_error),
            bad_at=self.bad_at if bad else after.bad_at,
            error=max(self.error, after.error),
            error_at=self.error_at if error else after.error_at,
            relative=max(self.relative, after.relative),
            error_squares=self.error_squares + after.error_squares,
            ref_squares=self.ref_squares + after.ref_squares,
        )


def difference(
    out: np.ndarray, ref: np.ndarray, atol: float, rtol: float, plain: Plain
) -> Difference:
    """Of two arrays of one shape; ``plain`` makes floats of a piece of either."""
    flat_out, flat_ref = out.reshape(-1), ref.reshape(-1)

    def piece(begin: int) -> Difference:
        end = begin + PIECE
        return _piece(plain(flat_out[begin:end]), plain(flat_ref[begin:end]), atol, rtol, begin)

    begins = range(0, out.size, PIECE)
    threads = min(MOST_THREADS, len(os.sched_getaffinity(0)), len(begins))
    if threads < 2:
        return _joined(map(piece, begins))
    with ThreadPoolExecutor(threads) as pool:
        return _joined(pool.map(piece, begins))


def _joined(pieces: Iterable[Difference]) -> Difference:
    return reduce(Difference.and_then, pieces, Difference())


def _piece(out: np.ndarray, ref: np.ndarray, atol: float, rtol: float, begin: int) -> Difference:
    finite = np.isfinite(ref)
    stray = np.isfinite(out) != finite
    if not finite.all():
        stray |= ~finite & ~((out == ref) | (np.isnan(out) & np.isnan(ref)))
    if stray.any():
        first = begin + int(np.argmax(stray))
        return Difference(size=ref.size, strays=int(stray.sum()), stray_at=first)
    with np.errstate(over="ignore"):  # a wild result overflows to infinity, which is far enough
        exact = np.where(finite, ref, 0).astype(np.float64)
        error = np.abs(np.where(finite, out, 0).astype(np.float64) - exact)
        magnitude = np.abs(exact)
        bad = error > atol + rtol * magnitude
        relative = np.divide(error, magnitude, out=np.zeros_like(error), where=magnitude > 0)
        squares = float(np.dot(error, error)), float(np.dot(exact, exact))
    at = int(np.argmax(error))
    worst = int(np.argmax(np.where(bad, error, -1.0))) if bad.any() else None
    return Difference(
        size=ref.size,
        bad=int(bad.sum()),
        bad_error=-1.0 if worst is None else float(error[worst]),
        bad_at=None if worst is None else begin + worst,
        error=float(error[at]),
        error_at=begin + at,
        relative=float(relative.max()),
        error_squares=squares[0],
        ref_squares=squares[1],
    )
