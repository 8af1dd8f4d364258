"""A straightforward KV cache: Python lists of tokens, stacked again for every attention."""

import numpy as np


class KVCache:
    def __init__(self, layers, heads, head_dim, batch, dtype="float32"):
        self.heads, self.head_dim, self.batch = heads, head_dim, batch
        self.dtype = np.dtype(dtype)
        self.keys = [[[] for _ in range(batch)] for _ in range(layers)]
        self.values = [[[] for _ in range(batch)] for _ in range(layers)]

    def append(self, layer, k, v, active=None):
        for row in range(self.batch):
            if active is None or active[row]:
                self.keys[layer][row].append(k[row].copy())
                self.values[layer][row].append(v[row].copy())

    def attend(self, layer, q):
        out = np.zeros((self.batch, self.heads, self.head_dim), self.dtype)
        for row in range(self.batch):
            if not self.keys[layer][row]:
                continue
            keys = np.stack(self.keys[layer][row])  # (tokens, heads, head_dim)
            values = np.stack(self.values[layer][row])
            for head in range(self.heads):
                scores = keys[:, head] @ q[row, head] / np.sqrt(self.dtype.type(self.head_dim))
                weights = np.exp(scores - scores.max())
                out[row, head] = (weights / weights.sum()) @ values[:, head]
        return out

    def reset(self, rows):
        for layer in range(len(self.keys)):
            for row in rows:
                self.keys[layer][row] = []
                self.values[layer][row] = []
