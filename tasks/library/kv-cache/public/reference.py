"""Attention without a cache: every output from the whole history of its row, in float64.

A call of the canonical interface is one step of the decoder::

    q                 (layers, batch, heads, head_dim)
    k, v              (layers, batch, kv_heads, head_dim)
    active            (batch,) bool: rows that get the token
    reset             (batch,) bool: rows that are emptied before the step
    context_k/_v      (tokens, layers, batch, kv_heads, head_dim), optional: tokens that come first
    context_active    (tokens, batch) bool, with them

and its output ``out`` is (layers, batch, heads, head_dim).
"""

import numpy as np


def make_inputs(shape, seed):
    """A context in the first call, then ``steps`` calls of ``stride`` tokens each, all N(0,1).

    With ``ragged``, row b starts with ``context * (b + 1) // batch`` tokens instead of ``context``.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    layers, heads, head_dim, batch = (shape[n] for n in ("layers", "heads", "head_dim", "batch"))
    kv_heads, dtype = shape.get("kv_heads", heads), np.dtype(shape["dtype"])
    context, stride = shape["context"], shape.get("stride", 1)
    lengths = np.full(batch, context)
    if shape.get("ragged"):
        lengths = context * np.arange(1, batch + 1) // batch
    calls = []
    for step in range(shape["steps"]):
        first = step == 0
        before = (context if first else 0) + stride - 1
        call = {
            "q": rng.standard_normal((layers, batch, heads, head_dim), dtype),
            "k": rng.standard_normal((layers, batch, kv_heads, head_dim), dtype),
            "v": rng.standard_normal((layers, batch, kv_heads, head_dim), dtype),
            "active": np.ones(batch, bool),
            "reset": np.zeros(batch, bool),
        }
        if before:
            size = (before, layers, batch, kv_heads, head_dim)
            call["context_k"] = rng.standard_normal(size, dtype)
            call["context_v"] = rng.standard_normal(size, dtype)
            call["context_active"] = np.ones((before, batch), bool)
            if first:
                call["context_active"][:context] = np.arange(context)[:, None] < lengths
        calls.append(call)
    params = {"layers": layers, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    tokens = context + stride * shape["steps"]
    return {
        "params": {**params, "batch": batch, "dtype": dtype.name, "tokens": tokens},
        "calls": calls,
    }


def reference(params, calls):
    """``out`` of each call."""
    outs = [np.zeros(call["q"].shape, np.float64) for call in calls]
    for row in range(params["batch"]):
        for first, last in _lives(row, calls):
            _one_life(row, calls[first:last], outs[first:last])
    return [{"out": out.astype(params["dtype"])} for out in outs]


def _lives(row, calls):
    """The ranges of calls between two resets of a row."""
    starts = sorted({0} | {n for n, call in enumerate(calls) if call["reset"][row]})
    return zip(starts, [*starts[1:], len(calls)], strict=True)


def _one_life(row, calls, outs):
    """All calls of one sequence at once: causal attention over the tokens that it got."""
    keys, values, counts = [], [], []
    for call in calls:
        if "context_k" in call:
            got = call["context_active"][:, row]
            keys.append(call["context_k"][got, :, row])
            values.append(call["context_v"][got, :, row])
        if call["active"][row]:
            keys.append(call["k"][None, :, row])
            values.append(call["v"][None, :, row])
        counts.append(sum(len(part) for part in keys))
    if counts[-1] == 0:
        return
    k = np.concatenate(keys).astype(np.float64)  # (tokens, layers, kv_heads, head_dim)
    v = np.concatenate(values).astype(np.float64)
    q = np.stack([call["q"][:, row] for call in calls]).astype(np.float64)
    finite = bool(np.isfinite(k).all() and np.isfinite(v).all())
    together = [slice(0, len(calls))] if finite else [slice(n, n + 1) for n in range(len(calls))]
    for part in together:  # a NaN token must not reach the calls before it: 0 * NaN is NaN
        for out, result in zip(outs[part], _causal(q[part], k, v, counts[part]), strict=True):
            out[:, row] = result


def _causal(q, k, v, counts):
    """q (calls, layers, heads, D) against the first ``counts[i]`` tokens -> like q."""
    most = counts[-1]
    if most == 0:
        return np.zeros_like(q)
    calls, layers, heads, head_dim = q.shape
    kv_heads = k.shape[2]
    group = heads // kv_heads
    # (layers, kv_heads, calls * group, D) against (layers, kv_heads, tokens, D)
    q = q.reshape(calls, layers, kv_heads, group, head_dim).transpose(1, 2, 0, 3, 4)
    q = q.reshape(layers, kv_heads, calls * group, head_dim)
    k, v = k[:most].transpose(1, 2, 0, 3), v[:most].transpose(1, 2, 0, 3)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(head_dim)
    seen = np.repeat(np.asarray(counts), group)[:, None]
    scores[..., np.arange(most) >= seen] = -np.inf
    with np.errstate(invalid="ignore"):  # calls before the first token: -inf minus -inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
    weights[..., (seen == 0)[:, 0], :] = 0
    out = (weights @ v).reshape(layers, kv_heads, calls, group, head_dim)
    return out.transpose(2, 0, 1, 3, 4).reshape(calls, layers, heads, head_dim)
