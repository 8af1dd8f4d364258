"""Layer norm with a hand-derived backward pass.

With xhat = (x - mean) / sqrt(var + eps) and g = dy * gamma:

    dx = (g - mean(g) - xhat * mean(g * xhat)) / sqrt(var + eps)
    dgamma = sum(dy * xhat), dbeta = sum(dy)

A gamma in another layout is made contiguous once and kept with a copy of what it was made from: all
of its values are compared in each call, so changed weights are seen.
"""

import numpy as np

_prepared = {"source": None, "ready": None}


def _ready(gamma):
    known = _prepared["source"]
    if known is None or known.dtype != gamma.dtype or not np.array_equal(known, gamma):
        _prepared["source"] = gamma.copy()
        _prepared["ready"] = np.ascontiguousarray(gamma)[None, None, :].copy()
    return _prepared["ready"]


def layernorm_forward(x, gamma, beta, eps=1e-5):
    centred = x - x[..., :1]
    centred -= centred.mean(axis=-1, keepdims=True)
    var = np.mean(np.square(centred), axis=-1, keepdims=True)
    rstd = (1 / np.sqrt(var + eps)).astype(x.dtype)
    xhat = centred * rstd
    return _ready(gamma) * xhat + beta, (xhat, rstd, gamma)


def layernorm_backward(dy, cache):
    xhat, rstd, gamma = cache
    g = dy * _ready(gamma)
    projection = np.mean(g * xhat, axis=-1, keepdims=True)
    dx = rstd * (g - g.mean(axis=-1, keepdims=True) - xhat * projection)
    return dx, (dy * xhat).sum(axis=(0, 1)), dy.sum(axis=(0, 1))
