"""A KV cache padded to the longest row, with a mask for the shorter ones."""

import numpy as np

GROWTH = 2


class KVCache:
    def __init__(self, layers, heads, head_dim, batch, dtype="float32"):
        self.layers, self.heads, self.head_dim, self.batch = layers, heads, head_dim, batch
        self.dtype = np.dtype(dtype)
        self.capacity = [64] * layers
        self.keys = [self._room(64) for _ in range(layers)]
        self.values = [self._room(64) for _ in range(layers)]
        self.lengths = np.zeros((layers, batch), np.int64)

    def _room(self, tokens):
        return np.zeros((self.batch, self.heads, tokens, self.head_dim), self.dtype)

    def _grow(self, layer):
        old = self.capacity[layer]
        self.capacity[layer] = old * GROWTH
        for store in (self.keys, self.values):
            fresh = self._room(self.capacity[layer])
            fresh[:, :, :old] = store[layer]
            store[layer] = fresh

    def append(self, layer, k, v, active=None):
        rows = np.arange(self.batch) if active is None else np.flatnonzero(active)
        if self.lengths[layer].max() + 1 > self.capacity[layer]:
            self._grow(layer)
        positions = self.lengths[layer, rows]
        self.keys[layer][rows, :, positions] = k[rows]
        self.values[layer][rows, :, positions] = v[rows]
        self.lengths[layer, rows] += 1

    def attend(self, layer, q):
        lengths = self.lengths[layer]
        longest = int(lengths.max())
        if longest == 0:
            return np.zeros((self.batch, self.heads, self.head_dim), self.dtype)
        keys = self.keys[layer][:, :, :longest]
        values = self.values[layer][:, :, :longest]
        scores = (keys @ q[..., None])[..., 0] / np.sqrt(self.dtype.type(self.head_dim))
        padding = np.arange(longest) > lengths[:, None]
        scores[np.broadcast_to(padding[:, None], scores.shape)] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return (weights[:, :, None] @ values)[:, :, 0]

    def reset(self, rows):
        self.lengths[:, rows] = 0
