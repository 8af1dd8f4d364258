"""Fused softmax and top-k, one pass over tiles of each row.

A running maximum and sum give the softmax of the chosen tokens; the k best so far are merged with what
exceeds the worst of them.

Within +-80 of zero exp(x) neither overflows nor vanishes in float32 and the maximum need not be known
first; other rows take the safe way. Both are good to float32.
"""

import numpy as np

SAFE = 80.0


TILE = 1 << 14


def fused_softmax_topk(logits, k):
    B, T, V = logits.shape
    indices = np.empty((B, T, k), np.int64)
    probabilities = np.empty((B, T, k), np.float32)
    for b, t in np.ndindex(B, T):
        indices[b, t], probabilities[b, t] = _row(logits[b, t], k)
    return indices, probabilities


def _row(row, k):
    if np.abs(row).max() <= SAFE:
        return _unshifted(row.astype(np.float32, copy=False), k)
    return _shifted(row, k)


def _unshifted(row, k):
    """No shift: the sum of up to V = 1e6 terms of exp(80) needs float64."""
    total = sum(
        float(np.exp(row[start : start + TILE].astype(np.float64)).sum())
        for start in range(0, row.size, TILE)
    )
    threshold = np.partition(row, row.size - k)[row.size - k]
    places = np.flatnonzero(row >= threshold)
    places = places[np.argsort(-row[places], kind="stable")][:k]
    return places, np.exp(row[places].astype(np.float64)) / total


def _shifted(row, k):
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
