"""Softmax of the whole vocabulary first, then the k largest: the version that fusing replaces.

The probabilities of all tokens are written to an array of the size of the logits. Selection goes by
the logits, not by the probabilities, which may round to equal numbers: everything above the k-th
largest logit, then as many equal to it as there is room for, lowest index first. gpu.py does it for
CUDA tensors.
"""

import numpy as np


def fused_softmax_topk(logits, k):
    if not isinstance(logits, np.ndarray):
        import gpu  # Triton, which a CPU machine lacks

        return gpu.topk(logits, k)
    logits = logits.astype(np.float32, copy=False)
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=-1, keepdims=True)
    indices = np.empty((*logits.shape[:2], k), np.int64)
    for b, t in np.ndindex(indices.shape[:2]):
        indices[b, t] = _largest(logits[b, t], k)
    return indices, np.take_along_axis(probabilities, indices, axis=-1)


def _largest(row, k):
    threshold = np.partition(row, row.size - k)[row.size - k]
    candidates = np.flatnonzero(row >= threshold)
    order = np.argsort(-row[candidates], kind="stable")
    return candidates[order[:k]]
