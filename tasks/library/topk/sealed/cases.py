"""Stress and further cases of ``topk``.

The public deck's rescaled inputs with its tolerances; ties, and the largest where a kernel that
splits rows may lose them. On a GPU also at the scored sizes. ``reference`` serves NumPy arrays.
"""

import numpy as np

from tasks.case import Case

SCALES = ((1e-4, 1e-7, 1e-4), (1e3, 0.1, 1e-4))  # factor, atol, rtol: the public deck's
SMALL = ((2, 300, 5), (2, 2500, 17))
SCORED = ((1, 131072, 64), (64, 8192, 8), (32, 16384, 32), (16, 12000, 16), (128, 4096, 1))
EDGES = ((1, 1, 1), (2, 33, 33), (1, 1025, 24), (3, 2049, 1), (1, 200, 199), (1, 4097, 12))


def cases(reference, seed, tier, device):
    """All cases; scored sizes on a GPU only."""
    sizes = SMALL if device == "cpu" else SMALL + SCORED
    for number, size in enumerate(sizes):
        x = _normal(reference, size, seed + number)
        for factor, atol, rtol in SCALES:
            scaled = (x * np.float32(factor)).astype(np.float32)
            yield _case(
                reference, f"scale {factor:g}", "stress:scale", scaled, size, seed, atol, rtol
            )
        for name, change in PATTERNS.items():
            rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, number])))
            changed = change(x.copy(), size[2], rng).astype(np.float32)
            yield _case(reference, name, "stress:pattern", changed, size, seed)
    for number, size in enumerate(EDGES):
        x = _normal(reference, size, seed + 100 + number)
        yield _case(reference, "edge", "property", x, size, seed)


def _normal(reference, size, seed):
    shape = dict(zip(("batch", "n", "k"), size, strict=True))
    return reference.make_inputs(shape, seed)["calls"][0]["x"]


def _few_levels(x, _k, _rng):
    return x.round()


def _tie_at_the_last_place(x, k, rng):
    """One less than k stand out; many share the next value."""
    x = np.minimum(x, 2.0)
    for row in x:
        row[rng.choice(row.size, min(2 * k, row.size), replace=False)] = 3.0
        row[rng.choice(row.size, max(k - 1, 0), replace=False)] = 4.0
    return x


def _neighbours(x, k, rng):
    """The largest differ in their last bits only."""
    for row in x:
        many = min(3 * k, row.size)
        steps = rng.permutation(many).astype(np.float32)
        row[rng.choice(row.size, many, replace=False)] = 4.0 + steps * np.float32(2.0**-21)
    return x


def _together(x, k, rng):
    """All of the largest lie side by side: one chunk of a split row holds them all."""
    start = int(rng.integers(x.shape[1] - k + 1))
    x[:, start : start + k] += 100.0
    return x


def _at_the_end(x, k, _rng):
    x[:, -k:] += 100.0
    return x


def _spread(x, k, _rng):
    """The largest a power of two apart: a strided lane meets many of them."""
    x[:, :: 1 << (max(x.shape[1] // k, 1).bit_length() - 1)] += 50.0
    return x


def _extremes(x, _k, _rng):
    return x / np.abs(x).max() * np.float32(3e38)


PATTERNS = {
    "few levels": _few_levels,
    "tie at the last place": _tie_at_the_last_place,
    "neighbours": _neighbours,
    "together": _together,
    "at the end": _at_the_end,
    "spread": _spread,
    "extremes": _extremes,
}


def _case(reference, name, group, x, size, seed, atol=None, rtol=None):
    params = {"init": list(size), "weights": {"_dummy": np.zeros(1, np.float32)}}
    calls = [{"x": x}]
    expected = reference.reference(params, calls)
    told = "x".join(map(str, size))
    return Case(f"{name}, {told}", group, str(seed), params, calls, expected, atol=atol, rtol=rtol)
