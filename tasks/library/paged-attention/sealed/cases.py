"""Stress and further cases of ``paged-attention``.

The public deck's rescaled inputs with its tolerances; keys that dominate early or late, scores far
from 0, sequences of other lengths, leftovers of earlier sequences behind the last token, shared
pages. On a GPU also at scored sizes. ``reference`` serves NumPy arrays, bfloat16 as its bits.
"""

import numpy as np

from tasks.case import Case
from tasks.rawfloats import decoded, encoded

SCALES = ((0.01, 5e-4, 5e-2), (8.0, 5e-2, 5e-2))  # factor, atol, rtol: the public deck's
NAMES = ("batch", "heads", "kv_heads", "head_dim", "seq", "page")
SMALL = ((2, 8, 2, 128, 77, 16), (3, 8, 1, 64, 129, 16))
SCORED = ((8, 32, 8, 128, 1024, 16), (16, 32, 8, 128, 1535, 16), (8, 16, 4, 64, 2000, 16))
EDGES = ((1, 4, 1, 64, 1, 16), (5, 8, 2, 64, 17, 16), (1, 16, 2, 128, 200, 16))


def cases(reference, seed, tier, device):
    """All cases; scored sizes on a GPU only."""
    for number, size in enumerate(SMALL if device == "cpu" else SMALL + SCORED):
        for factor, atol, rtol in SCALES:
            made = _made(reference, size, seed + number)
            for name in ("query", "kv_cache"):
                _change(made, name, lambda values, by=factor: values * by)
            yield _case(
                reference, f"scale {factor:g}", "stress:scale", made, size, seed, atol, rtol
            )
    for number, (name, change) in enumerate(PATTERNS.items()):
        for size in SMALL if device == "cpu" else (*SMALL, SCORED[-1]):
            made = _made(reference, size, seed + 100 + number)
            rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, number])))
            change(made["calls"][0], rng)
            yield _case(reference, name, "stress:pattern", made, size, seed, 5e-2, 5e-2)
    for number, size in enumerate(EDGES):
        made = _made(reference, size, seed + 200 + number)
        yield _case(reference, "edge", "property", made, size, seed)


def _made(reference, size, seed):
    return reference.make_inputs(dict(zip(NAMES, size, strict=True)), seed)


def _change(made, name, change):
    call = made["calls"][0]
    call[name] = encoded("bfloat16", change(decoded("bfloat16", call[name])))


def _tokens(call):
    """(sequence, token) -> page and slot, for the tokens that a sequence has."""
    page = call["kv_cache"].shape[1]
    for b, length in enumerate(call["seq_lens"]):
        token = np.arange(length)
        yield b, call["block_table"][b, token // page], token % page


def _with_values(call, change):
    """``change(b, query, keys)`` gives the new keys of a sequence: (tokens, kv_heads, head_dim)."""
    dim = call["query"].shape[2]
    query = decoded("bfloat16", call["query"])
    cache = decoded("bfloat16", call["kv_cache"]).copy()
    for b, pages, slots in _tokens(call):
        keys = cache[pages, slots]
        keys[..., :dim] = change(b, query, keys[..., :dim])
        cache[pages, slots] = keys
    call["kv_cache"] = encoded("bfloat16", cache)


def _towards(query, kv_heads):
    """For each KV head a direction with a product of 1 with its first query head."""
    first = query.reshape(kv_heads, -1, query.shape[-1])[:, 0]
    return first / np.square(first).sum(-1, keepdims=True)


def _steered(call, scores):
    """Keys whose scores of the first head of a group are about ``scores(length)``."""
    root = call["query"].shape[2] ** 0.5

    def change(b, query, keys):
        wanted = np.asarray(scores(len(keys)), np.float32)
        return keys + wanted[:, None, None] * root * _towards(query[b], keys.shape[1])

    _with_values(call, change)


def _one_key(call, rng):
    """One token has nearly all of the weight, in the first tile or the last."""
    for_first = bool(rng.integers(2))

    def scores(length):
        found = np.zeros(length)
        found[0 if for_first else -1] = 20.0
        return found

    _steered(call, scores)


def _growing(call, _rng):
    """Each token weighs more than the last: the running maximum moves all the time."""
    _steered(call, lambda length: np.linspace(-30, 30, length))


def _falling(call, _rng):
    _steered(call, lambda length: np.linspace(30, -30, length))


def _far_below(call, _rng):
    """All scores near -150: exp alone would give 0 / 0."""
    _steered(call, lambda length: np.full(length, -150.0))


def _far_above(call, _rng):
    """All scores near 150: exp alone would give inf / inf."""
    _steered(call, lambda length: np.full(length, 150.0))


def _shorter(call, rng):
    """Lengths from one token to all, one at the end of a page."""
    longest, batch = int(call["seq_lens"].max()), len(call["seq_lens"])
    lengths = rng.integers(1, longest + 1, batch)
    lengths[0], lengths[-1] = 1, 16 * (longest // 16)
    call["seq_lens"] = lengths.astype(np.int32)


def _leftovers(call, rng):
    """What lies behind the last token, and in pages that nobody has, is large."""
    _shorter(call, rng)
    cache = decoded("bfloat16", call["kv_cache"])
    changed = np.sign(cache) * 300.0
    for _, pages, slots in _tokens(call):
        changed[pages, slots] = cache[pages, slots]
    call["kv_cache"] = encoded("bfloat16", changed)


def _shared(call, _rng):
    """All sequences begin with the same pages."""
    table = call["block_table"].copy()
    table[:, : max(table.shape[1] // 2, 1)] = table[0, : max(table.shape[1] // 2, 1)]
    call["block_table"] = table


def _in_order(call, _rng):
    """Pages from the end of the pool to its start."""
    table = call["block_table"]
    pool = np.arange(call["kv_cache"].shape[0], dtype=np.int32)[::-1]
    call["block_table"] = np.ascontiguousarray(pool[: table.size].reshape(table.shape))


PATTERNS = {
    "one key": _one_key,
    "growing": _growing,
    "falling": _falling,
    "far below": _far_below,
    "far above": _far_above,
    "shorter": _shorter,
    "leftovers": _leftovers,
    "shared pages": _shared,
    "pages in order": _in_order,
}


def _case(reference, name, group, made, size, seed, atol=None, rtol=None):
    params, calls = made["params"], made["calls"]
    expected = reference.reference(params, calls)
    told = "x".join(map(str, size[:-1]))
    return Case(f"{name}, {told}", group, str(seed), params, calls, expected, atol=atol, rtol=rtol)
