"""An adapter of our own in place of a task's: what one core of this machine reaches.

It runs where submissions run, on the same interpreter, NumPy, core and limits, so that a fraction
of these figures is a fraction of what could have been reached.

Bandwidth: better of copy (2 streams) and triad in two steps (5 streams) over arrays of ``BYTES``
each, far beyond any cache of a core (after STREAM, McCalpin 1995; write-allocate traffic is not
counted, so work that only reads can exceed it). Compute: a float32 matrix product of size ``SIZE``.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

BYTES = 64 << 20
SIZE = 768
REPEATS = 5

Vectors = list[np.ndarray]


def setup(_entries: Any, _params: Any) -> Vectors:
    """Touch all pages once."""
    n = BYTES // 4
    return [np.full(n, 1.0, np.float32) for _ in range(3)]


def run(_entries: Any, state: Vectors, _inputs: Any) -> dict[str, np.floating]:
    """``bandwidth`` in 1e9 byte/s, ``gflops`` in 1e9 FLOP/s."""
    bandwidth = max(streams * BYTES / _best(work, state) for streams, work in _WORK)
    square = [np.full((SIZE, SIZE), 0.5, np.float32)] * 3
    gflops = 2 * SIZE**3 / _best(lambda matrices: matrices[0] @ matrices[1], square)
    return {"bandwidth": np.float64(bandwidth / 1e9), "gflops": np.float64(gflops / 1e9)}


def _triad(vectors: Vectors) -> None:
    a, b, c = vectors
    np.multiply(c, np.float32(3.0), out=a)
    np.add(a, b, out=a)


_WORK: tuple[tuple[int, Callable[[Vectors], object]], ...] = (
    (2, lambda vectors: np.copyto(vectors[0], vectors[1])),
    (5, _triad),
)


def _best(work: Callable[[Vectors], object], vectors: Vectors) -> float:
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work(vectors)
        seconds.append(time.perf_counter() - started)
    return min(seconds)
