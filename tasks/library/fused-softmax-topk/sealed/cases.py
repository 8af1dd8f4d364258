"""Stress and property cases of ``fused-softmax-topk``.

Every draw comes from a counter-based generator of (seed, number of the case). Indices are exact and
probabilities within the task's tolerance in every case; views have no negative strides, which CUDA
tensors lack. bfloat16 exists on CUDA only: its cases come when ``device`` says so.
"""

import numpy as np

from tasks.case import Case

EDGES = ((1, 1, 1, 1), (2, 3, 2, 2), (1, 5, 31, 31), (3, 1, 64, 64), (1, 2, 300, 299), (2, 2, 7, 1))
ODD = ((1, 3, 4095, 9), (1, 3, 4097, 16), (2, 1, 8193, 33), (1, 5, 1021, 50), (1, 2, 50257, 256))
APART = ((2, 9, 517, 6), (1, 33, 131, 4), (5, 13, 1000, 1), (3, 7, 2049, 17))


def cases(reference, seed, tier, device):
    """All cases; ``full`` repeats the random ones more often than ``quick``."""
    plan = [*_plan(4 if tier == "full" else 1), *(_bfloat16_plan() if device == "cuda" else ())]
    for number, (make, options) in enumerate(plan):
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, number])))
        name, item, group, calls, k = make(rng, **options)
        params = {"k": k, "bfloat16": options.get("dtype") == "bfloat16"}
        if params["bfloat16"]:
            calls = [reference.to_bfloat16(logits) for logits in calls]
        named = [{"logits": logits} for logits in calls]
        expected = reference.reference(params, named)
        yield Case(f"{name}-{number}", group, f"{seed}/{number}", params, named, expected, item)


def _plan(repeats):
    yield from [(_random, {"dtype": "float32"})] * (3 * repeats)
    yield from [(_random, {"dtype": "float16"})] * repeats
    yield from ((_sized, {"size": size, "item": "k_and_v_edges"}) for size in EDGES)
    yield from ((_sized, {"size": size, "item": "odd_sizes"}) for size in ODD)
    yield from ((_rows_apart, {"size": size, "steps": s}) for size in APART for s in _STEPS)
    yield from ((_pattern, {"kind": kind}) for kind in _PATTERNS)
    yield from ((_view, {"view": view}) for view in _VIEWS)
    yield from ((_scaled, {"scale": scale}) for scale in (1e-3, 30.0, 1e4))
    yield from ((_shifted, {"offset": offset}) for offset in (1e4, -1e4, 300.0))
    yield from ((_half, {"kind": kind}) for kind in _HALF)
    yield _repeated, {}


def _bfloat16_plan():
    yield from [(_random, {"dtype": "bfloat16"})] * 3


def _normal(rng, shape, scale=2.0):
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def _random(rng, dtype):
    B, T = int(rng.integers(1, 4)), int(rng.integers(1, 8))
    V = int(rng.integers(20, 3000))
    k = int(min(V, rng.choice([1, 2, 5, 8, 20, 64, 100])))
    logits = _normal(rng, (B, T, V), float(rng.choice([0.5, 2, 6])))
    narrow = logits.astype(np.float16) if dtype == "float16" else logits
    item = "selection" if dtype == "float32" else "half_precision"
    return f"random-{dtype}", item, "property", [narrow], k


def _sized(rng, size, item):
    *shape, k = size
    name = "size-" + "x".join(map(str, size))
    return name, item, "property", [_normal(rng, shape)], k


# Rows that share a block and differ so much that a value of the wrong row shows in both results.
_STEPS = {
    "ascending": lambda rows, _rng: 7.0 * np.arange(rows),
    "alternating": lambda rows, _rng: np.where(np.arange(rows) % 2, 500.0, -500.0),
    "one-high": lambda rows, rng: 90.0 * (np.arange(rows) == rng.integers(rows)),
}


def _rows_apart(rng, size, steps):
    B, T, V, k = size
    offsets = _STEPS[steps](B * T, rng).reshape(B, T, 1)
    scales = rng.choice([0.1, 1.0, 5.0], (B, T, 1))
    logits = (scales * rng.standard_normal((B, T, V)) + offsets).astype(np.float32)
    return f"rows-{steps}-{B}x{T}x{V}", "rows_apart", "property", [logits], k


def _few_levels(rng, shape):
    return rng.integers(-3, 4, shape).astype(np.float32)


def _equal(rng, shape):
    return np.broadcast_to(_normal(rng, (*shape[:2], 1)), shape).copy()


def _boundary_tie(rng, shape):
    """Three clear winners; ties at the second level run across the k-th place and the whole row."""
    logits = _normal(rng, shape, 0.5)
    logits[..., rng.choice(shape[2], 40, replace=False)] = 5.0
    logits[..., rng.choice(shape[2], 3, replace=False)] = 6.0
    return logits


def _signed_zeros(rng, shape):
    return np.where(rng.random(shape) < 0.5, np.float32(-0.0), np.float32(0.0))


def _neighbours(rng, shape):
    """The largest differ in their last bits only, in random places."""
    logits = _normal(rng, shape, 0.5)
    values = np.float32(4.0) + np.arange(24, dtype=np.float32) * np.float32(2.0**-21)
    for row in logits.reshape(-1, shape[2]):
        row[rng.choice(shape[2], 24, replace=False)] = rng.permutation(values)
    return logits


def _ascending(rng, shape):
    return np.sort(_normal(rng, shape), axis=-1)


def _descending(rng, shape):
    return np.sort(_normal(rng, shape), axis=-1)[..., ::-1].copy()


def _single_finite(rng, shape):
    logits = np.full(shape, -np.inf, np.float32)
    for row in logits.reshape(-1, shape[2]):
        row[rng.integers(shape[2])] = rng.normal()
    return logits


def _mostly_masked(rng, shape):
    """Fewer finite entries than k: the rest are masked ones, by ascending index."""
    logits = _single_finite(rng, shape)
    logits[..., rng.choice(shape[2], 4, replace=False)] = _normal(rng, (*shape[:2], 4))
    return logits


def _masked_tail(rng, shape):
    logits = _normal(rng, shape)
    logits[..., shape[2] // 3 :] = -np.inf
    return logits


def _masked_head(rng, shape):
    """Nothing finite in what a tile or a block of threads sees first."""
    logits = _normal(rng, shape)
    logits[..., : shape[2] - 37] = -np.inf
    return logits


def _outlier_at_end(rng, shape):
    logits = _normal(rng, shape)
    logits[..., -1] = 60.0
    return logits


def _both_extremes(rng, shape):
    return np.where(rng.random(shape) < 0.01, 1e4, -1e4).astype(np.float32)


_PATTERNS = {
    "few-levels": (_few_levels, "ties", (2, 3, 700), 20),
    "boundary-tie": (_boundary_tie, "ties", (1, 6, 5000), 16),
    "signed-zeros": (_signed_zeros, "ties", (1, 3, 600), 12),
    "neighbours": (_neighbours, "ties", (2, 2, 3000), 20),
    "equal": (_equal, "all_equal", (2, 5, 1500), 8),
    "equal-all-k": (_equal, "all_equal", (1, 2, 40), 40),
    "ascending": (_ascending, "selection", (1, 3, 4000), 32),
    "descending": (_descending, "selection", (1, 3, 4000), 32),
    "outlier-at-end": (_outlier_at_end, "selection", (1, 3, 10007), 8),
    "single-finite-k1": (_single_finite, "masked", (2, 4, 900), 1),
    "single-finite": (_single_finite, "masked", (2, 4, 900), 5),
    "mostly-masked": (_mostly_masked, "masked", (1, 5, 9000), 12),
    "masked-tail": (_masked_tail, "masked", (1, 4, 6001), 16),
    "masked-head": (_masked_head, "masked", (1, 4, 12000), 16),
    "both-extremes": (_both_extremes, "large_logits", (1, 4, 3001), 10),
}


def _pattern(rng, kind):
    make, item, shape, k = _PATTERNS[kind]
    return f"pattern-{kind}", item, "property", [make(rng, shape)], k


_VIEWS = {
    "transposed": lambda a: np.ascontiguousarray(a.transpose(1, 0, 2)).transpose(1, 0, 2),
    "every-second": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "padded-rows": lambda a: np.pad(a, ((0, 0), (0, 0), (0, 13)), constant_values=50)[..., :-13],
    "vocabulary-first": lambda a: np.ascontiguousarray(a.transpose(2, 0, 1)).transpose(1, 2, 0),
}


def _view(rng, view):
    logits = _VIEWS[view](_normal(rng, (3, 4, 1037)))
    return f"view-{view}", "noncontiguous", "property", [logits], 11


def _scaled(rng, scale):
    item = "large_logits" if scale > 100 else "selection"
    logits = _normal(rng, (2, 3, 32000), scale)
    return f"scale{scale:.0e}", item, "stress:scale", [logits], 20


def _shifted(rng, offset):
    logits = _normal(rng, (2, 3, 32000)) + np.float32(offset)
    return f"offset{offset:.0e}", "large_logits", "stress:offset", [logits], 20


def _half_normal(rng):
    return rng.standard_normal((2, 3, 5003))  # half precision makes many ties at this size


def _half_extreme(rng):
    return np.where(rng.random((1, 4, 701)) < 0.02, 6e4, -6e4)


def _half_masked(rng):
    logits = rng.standard_normal((1, 4, 701))
    logits[..., ::3] = -np.inf
    return logits


_HALF = {"normal": _half_normal, "extreme": _half_extreme, "masked": _half_masked}


def _half(rng, kind):
    logits = _HALF[kind](rng).astype(np.float16)
    return f"half-{kind}", "half_precision", "property", [logits], 30


def _repeated(rng):
    """A, B, A': equal shapes; A' differs from A in one element far from the front."""
    first, second = (_normal(rng, (2, 5, 2003)) for _ in range(2))
    third = first.copy()
    third[1, 3, 1777] = 20.0
    return "repeated", "selection", "property", [first, second, third], 10
