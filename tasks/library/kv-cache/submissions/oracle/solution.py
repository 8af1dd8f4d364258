"""A key/value cache for incremental decoding: NumPy only, exact, O(length) a step.

Layout: per layer one slab for keys and one for values, (batch, kv_heads, capacity, head_dim). The
tokens of one row and head are contiguous, so attention streams memory in order and both products
are plain BLAS calls on views; nothing is gathered or copied. Capacity grows in chunks,
geometrically, so an append is amortised O(1). Rows have lengths of their own and attention reads
only `[:length]`: padding and leftovers are never read, so there is nothing to mask.
"""

import math

import numpy as np

CHUNK = 128  # tokens; capacities are multiples of it
GROWTH = 1.5


class _Lengths:
    """How many tokens each row has in one layer; knows when all rows are equally long."""

    def __init__(self, batch):
        self.of_row = np.zeros(batch, np.int64)
        self.longest = 0
        self.uniform = True

    def advance(self, rows):
        self.of_row[rows] += 1
        self._summarise()

    def advance_all(self):
        self.of_row += 1
        if self.uniform:
            self.longest += 1
        else:
            self._summarise()

    def clear(self, rows):
        self.of_row[rows] = 0
        self._summarise()

    def _summarise(self):
        self.longest = int(self.of_row.max())
        self.uniform = bool((self.of_row == self.longest).all())


class _Slab:
    """One growing array (batch, heads, capacity, width)."""

    def __init__(self, batch, heads, width, dtype):
        self.data = np.empty((batch, heads, 0, width), dtype)

    def reserve(self, tokens, used):
        """Make room for `tokens` tokens, of which `used` are to be kept."""
        batch, heads, capacity, width = self.data.shape
        if tokens <= capacity:
            return
        wanted = max(tokens, int(capacity * GROWTH))
        fresh = np.empty((batch, heads, -(-wanted // CHUNK) * CHUNK, width), self.data.dtype)
        fresh[:, :, :used] = self.data[:, :, :used]
        self.data = fresh

    def write(self, values, position):
        """The same position in all rows."""
        self.data[:, :, position] = values

    def write_rows(self, values, rows, positions):
        """A position per row, for some rows."""
        self.data[rows, :, positions] = values[rows]


def _softmax_in_place(scores):
    """Stable softmax over the last axis."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)


class GroupedQueryKVCache:
    """A cache in which `heads // kv_heads` query heads share one key/value head."""

    def __init__(self, layers, heads, kv_heads, head_dim, batch, dtype="float32"):
        if heads % kv_heads:
            raise ValueError(f"{heads} query heads cannot share {kv_heads} key/value heads evenly")
        self.heads, self.kv_heads, self.head_dim, self.batch = heads, kv_heads, head_dim, batch
        self.dtype = np.dtype(dtype)
        self.scale = self.dtype.type(1 / math.sqrt(head_dim))
        self.lengths = [_Lengths(batch) for _ in range(layers)]
        self.stores = [self._new_store() for _ in range(layers)]

    def _new_store(self):
        return tuple(
            _Slab(self.batch, self.kv_heads, self.head_dim, self.dtype) for _ in ("k", "v")
        )

    def append(self, layer, k, v, active=None):
        """Add one token to the active rows of a layer; everything kept is copied."""
        lengths, slabs = self.lengths[layer], self.stores[layer]
        for slab in slabs:
            slab.reserve(lengths.longest + 1, lengths.longest)
        parts = self._encode(k, v)
        everyone = active is None or bool(np.all(active))
        if everyone and lengths.uniform:
            for slab, part in zip(slabs, parts):
                slab.write(part, lengths.longest)
            lengths.advance_all()
            return
        rows = np.arange(self.batch) if everyone else np.flatnonzero(active)
        for slab, part in zip(slabs, parts):
            slab.write_rows(part, rows, lengths.of_row[rows])
        lengths.advance(rows)

    def attend(self, layer, q):
        """softmax(q K^T / sqrt(head_dim)) V of every row over its own tokens; zeros without any."""
        lengths = self.lengths[layer]
        out = np.zeros((self.batch, self.heads, self.head_dim), self.dtype)
        group = self.heads // self.kv_heads
        queries = (q * self.scale).reshape(self.batch, self.kv_heads, group, self.head_dim)
        results = out.reshape(queries.shape)
        if lengths.uniform:
            if lengths.longest:
                rows = slice(None)
                self._attend_rows(layer, rows, lengths.longest, queries, results)
            return out
        for row, length in enumerate(lengths.of_row.tolist()):
            if length:
                rows = slice(row, row + 1)
                self._attend_rows(layer, rows, length, queries[rows], results[rows])
        return out

    def reset(self, rows):
        """Empty rows in all layers: their tokens become unreadable, their memory is reused."""
        for lengths in self.lengths:
            lengths.clear(rows)

    def nbytes(self):
        """Bytes reserved, and bytes that the present tokens need."""
        reserved = needed = 0
        for lengths, store in zip(self.lengths, self.stores):
            widths = sum(slab.data.shape[-1] * slab.data.itemsize for slab in store)
            reserved += sum(slab.data.nbytes for slab in store)
            needed += int(lengths.of_row.sum()) * self.kv_heads * widths
        return reserved, needed

    def _encode(self, k, v):
        return k, v

    def _attend_rows(self, layer, rows, length, queries, results):
        """queries (rows, kv_heads, group, head_dim), all over the first `length` tokens."""
        keys, values = (slab.data[rows, :, :length] for slab in self.stores[layer])
        scores = queries @ keys.swapaxes(-1, -2)
        _softmax_in_place(scores)
        np.matmul(scores, values, out=results)


class KVCache(GroupedQueryKVCache):
    """Multi-head attention: every query head has a key/value head of its own."""

    def __init__(self, layers, heads, head_dim, batch, dtype="float32"):
        super().__init__(layers, heads, heads, head_dim, batch, dtype)


class QuantizedKVCache(GroupedQueryKVCache):
    """Keys and values as int8 with one scale a token and head: 3.8x smaller at 64 x float32.

    Scales never meet the big arrays: a key's scale multiplies its score, a value's scale its weight.
    """

    BLOCK = 256  # tokens converted at a time, so that the float copy stays in the core's cache

    def __init__(self, layers, heads, head_dim, batch, dtype="float32"):
        super().__init__(layers, heads, heads, head_dim, batch, dtype)

    def _new_store(self):
        shapes = ((self.head_dim, np.int8), (1, self.dtype)) * 2  # k, its scales, v, its scales
        return tuple(_Slab(self.batch, self.kv_heads, width, kind) for width, kind in shapes)

    def _encode(self, k, v):
        return (*self._quantise(k), *self._quantise(v))

    def _quantise(self, x):
        scales = np.abs(x).max(axis=-1, keepdims=True) / self.dtype.type(127)
        with np.errstate(invalid="ignore", divide="ignore"):  # padding; rows of zeros
            codes = np.where(scales > 0, np.rint(x / scales), 0).astype(np.int8)
        return codes, scales

    def _attend_rows(self, layer, rows, length, queries, results):
        keys, key_scales, values, value_scales = (
            slab.data[rows, :, :length] for slab in self.stores[layer]
        )
        scores = np.empty((*queries.shape[:3], length), self.dtype)
        for block in self._blocks(length):
            part = keys[:, :, block].astype(self.dtype)
            np.matmul(queries, part.swapaxes(-1, -2), out=scores[..., block])
        scores *= key_scales.swapaxes(-1, -2)
        _softmax_in_place(scores)
        scores *= value_scales.swapaxes(-1, -2)
        for block in self._blocks(length):
            results += scores[..., block] @ values[:, :, block].astype(self.dtype)

    def _blocks(self, length):
        return (slice(start, start + self.BLOCK) for start in range(0, length, self.BLOCK))
