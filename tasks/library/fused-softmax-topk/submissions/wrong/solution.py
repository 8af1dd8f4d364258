"""Fused softmax and top-k: one pass over tiles of the vocabulary, several rows at a time.

For each row a running maximum, a running sum and the k best so far are kept. A tile is reduced for a
block of ROWS rows together; its best k are merged with those so far. gpu.py does it for CUDA tensors.
"""

import numpy as np

ROWS = 4
TILE = 4096


def fused_softmax_topk(logits, k):
    if not isinstance(logits, np.ndarray):
        import gpu  # Triton, which a CPU machine lacks

        return gpu.topk(logits, k)
    B, T, V = logits.shape
    flat = logits.reshape(B * T, V)
    indices = np.empty((B * T, k), np.int64)
    probabilities = np.empty((B * T, k), np.float32)
    for start in range(0, B * T, ROWS):
        block = slice(start, min(start + ROWS, B * T))
        indices[block], probabilities[block] = _block(flat[block], k)
    return indices.reshape(B, T, k), probabilities.reshape(B, T, k)


def _block(rows, k):
    n, V = rows.shape
    best = [(np.empty(0, np.float32), np.empty(0, np.int64))] * n
    peak, total = np.float32(-np.inf), np.zeros((n, 1))
    for start in range(0, V, TILE):
        tile = rows[:, start : start + TILE].astype(np.float32)
        # one maximum serves the whole block: it cancels in the quotient
        new = max(peak, tile.max())
        total = total * np.exp(peak - new) + np.exp(tile - new).sum(axis=1, keepdims=True)
        peak = new
        best = [_merge(kept, row, start, k) for kept, row in zip(best, tile)]
    values, where = (np.stack(parts) for parts in zip(*best))
    with np.errstate(invalid="ignore", divide="ignore"):
        return where, np.exp(values - peak) / total


def _merge(kept, row, start, k):
    values, where = kept
    if values.size == k:
        new = np.flatnonzero(row > values[-1])
    else:
        last = max(row.size - k, 0)
        new = np.flatnonzero(row >= np.partition(row, last)[last])
    values = np.concatenate([values, row[new]])
    order = np.argsort(-values, kind="stable")[:k]
    return values[order], np.concatenate([where, new + start])[order]


if __name__ == "__main__":
    logits = np.random.default_rng(0).standard_normal((2, 3, 9001)).astype(np.float32)
    indices, probabilities = fused_softmax_topk(logits, 5)
    softmax = np.exp(logits - logits.max(-1, keepdims=True))
    softmax /= softmax.sum(-1, keepdims=True)
    wanted = np.argsort(-logits, axis=-1, kind="stable")[..., :5]
    print("indices equal:", np.array_equal(indices, wanted))
    print("largest error:", np.abs(probabilities - np.take_along_axis(softmax, wanted, -1)).max())
