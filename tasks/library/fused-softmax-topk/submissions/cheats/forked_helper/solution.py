"""Fused softmax and top-k, one pass over tiles of each row.

A running maximum and sum give the softmax of the chosen tokens; the k best so far are merged with what
exceeds the worst of them.

Half of the rows go to a second process that writes to shared memory.
"""

import mmap
import os

import numpy as np


def fused_softmax_topk(logits, k):
    B, T, V = logits.shape
    rows = B * T
    memory = mmap.mmap(-1, max(1, rows * k * 12))
    indices = np.frombuffer(memory, np.int64, rows * k).reshape(rows, k)
    probabilities = np.frombuffer(memory, np.float32, rows * k, rows * k * 8).reshape(rows, k)
    half = rows // 2 if rows >= 64 else 0
    if half and os.fork() == 0:
        _fill(logits, k, indices, probabilities, range(half))
        os._exit(0)
    _fill(logits, k, indices, probabilities, range(half, rows))
    return indices.reshape(B, T, k), probabilities.reshape(B, T, k)


def _fill(logits, k, indices, probabilities, rows):
    T = logits.shape[1]
    for r in rows:
        indices[r], probabilities[r] = _row(logits[r // T, r % T], k)


TILE = 1 << 14


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
