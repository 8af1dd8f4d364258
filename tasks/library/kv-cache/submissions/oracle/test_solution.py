"""The cache against attention that is computed without one. Run: python test_solution.py"""

import unittest

import numpy as np

from solution import GroupedQueryKVCache, KVCache, QuantizedKVCache


def uncached(q, keys, values):
    """q (heads, D); keys and values lists of (kv_heads, D): the whole history, in float64."""
    out = np.zeros(q.shape, np.float64)
    if not keys:
        return out
    k, v = np.asarray(keys, np.float64), np.asarray(values, np.float64)
    group = q.shape[0] // k.shape[1]
    for head in range(q.shape[0]):
        scores = k[:, head // group] @ q[head].astype(np.float64) / np.sqrt(q.shape[1])
        weights = np.exp(scores - scores.max())
        out[head] = weights / weights.sum() @ v[:, head // group]
    return out


class History:
    """Drives a cache with random ragged steps and remembers all that it was given."""

    def __init__(self, cache, layers, heads, kv_heads, head_dim, batch, dtype, seed):
        self.cache, self.layers, self.dtype = cache, layers, dtype
        self.q_size, self.kv_size = (batch, heads, head_dim), (batch, kv_heads, head_dim)
        self.rng = np.random.default_rng(seed)
        self.tokens = [[([], []) for _ in range(batch)] for _ in range(layers)]

    def reset(self, rows):
        self.cache.reset(np.asarray(rows))
        for layer in self.tokens:
            for row in rows:
                layer[row] = ([], [])

    def step(self, active):
        """Append and attend in every layer; the pairs (got, wanted)."""
        pairs = []
        for layer in range(self.layers):
            k, v = (self.rng.standard_normal(self.kv_size).astype(self.dtype) for _ in range(2))
            k[~active], v[~active] = np.nan, np.nan
            for row in np.flatnonzero(active):
                self.tokens[layer][row][0].append(k[row].copy())
                self.tokens[layer][row][1].append(v[row].copy())
            self.cache.append(layer, k, v, active)
            k[...], v[...] = 1e9, 1e9  # the decoder reuses its arrays
            q = self.rng.standard_normal(self.q_size).astype(self.dtype)
            wanted = [uncached(q[row], *held) for row, held in enumerate(self.tokens[layer])]
            pairs.append((self.cache.attend(layer, q), np.array(wanted)))
        return pairs


def relative_rms(pairs):
    got = np.concatenate([np.ravel(one) for one, _ in pairs]).astype(np.float64)
    wanted = np.concatenate([np.ravel(two) for _, two in pairs])
    return np.sqrt(np.mean((got - wanted) ** 2) / np.mean(wanted**2))


class CacheEqualsNoCache(unittest.TestCase):
    def drive(self, history, batch, steps):
        pairs = []
        for n in range(steps):
            if n % 7 == 6:
                history.reset([n % batch])
            pairs += history.step(history.rng.random(batch) < 0.7)
        return pairs

    def test_ragged_batches_with_resets(self):
        for dtype, bound in (("float32", 2e-6), ("float64", 1e-13)):
            for heads, head_dim, batch in ((1, 1, 1), (2, 7, 3), (4, 64, 5)):
                with self.subTest(dtype=dtype, heads=heads, head_dim=head_dim, batch=batch):
                    cache = KVCache(2, heads, head_dim, batch, dtype)
                    history = History(cache, 2, heads, heads, head_dim, batch, dtype, 1)
                    pairs = self.drive(history, batch, 40)
                    self.assertLess(relative_rms(pairs), bound)
                    self.assertTrue(all(got.dtype == dtype for got, _ in pairs))

    def test_growth_past_several_chunks(self):
        cache = KVCache(1, 2, 4, 2, "float64")
        history = History(cache, 1, 2, 2, 4, 2, "float64", 2)
        pairs = self.drive_all(history, 2, 300)
        self.assertLess(relative_rms(pairs[-3:]), 1e-13)

    def drive_all(self, history, batch, steps):
        return [pair for _ in range(steps) for pair in history.step(np.ones(batch, bool))]

    def test_grouped_queries(self):
        cache = GroupedQueryKVCache(2, 8, 2, 16, 3, "float64")
        history = History(cache, 2, 8, 2, 16, 3, "float64", 3)
        self.assertLess(relative_rms(self.drive(history, 3, 30)), 1e-13)

    def test_quantised_error_bound(self):
        cache = QuantizedKVCache(1, 4, 64, 2)
        history = History(cache, 1, 4, 4, 64, 2, "float32", 4)
        self.assertLess(relative_rms(self.drive_all(history, 2, 300)), 0.02)


class Corners(unittest.TestCase):
    def test_a_row_without_tokens_gives_zeros(self):
        cache = KVCache(1, 2, 3, 2)
        ones = np.ones((2, 2, 3), np.float32)
        cache.append(0, ones, ones, np.array([True, False]))
        out = cache.attend(0, ones)
        self.assertTrue((out[0] == 1).all() and (out[1] == 0).all())

    def test_scores_of_several_thousand(self):
        cache = KVCache(1, 1, 4, 1)
        for value in (100.0, 101.0):
            token = np.full((1, 1, 4), value, np.float32)
            cache.append(0, token, token)
        out = cache.attend(0, np.full((1, 1, 4), 100, np.float32))
        self.assertTrue((out == 101).all())

    def test_nan_of_an_earlier_sequence_is_gone(self):
        cache = KVCache(1, 1, 2, 2)
        bad, good = np.full((2, 1, 2), np.nan, np.float32), np.ones((2, 1, 2), np.float32)
        for _ in range(3):
            cache.append(0, bad, bad)
        cache.reset(np.array([0, 1]))
        cache.append(0, good, good)
        self.assertTrue((cache.attend(0, good) == 1).all())

    def test_memory_follows_the_tokens(self):
        cache = KVCache(2, 2, 8, 2)
        token = np.ones((2, 2, 8), np.float32)
        for _ in range(1000):
            for layer in range(2):
                cache.append(layer, token, token)
        reserved, needed = cache.nbytes()
        self.assertEqual(needed, 2 * 2 * 2 * 8 * 2000 * 4)
        self.assertLessEqual(reserved, 1.6 * needed)


if __name__ == "__main__":
    unittest.main()
