"""Layer norm with a hand-derived backward pass.

With xhat = (x - mean) / sqrt(var + eps) and g = dy * gamma:

    dx = (g - mean(g) - xhat * mean(g * xhat)) / sqrt(var + eps)
    dgamma = sum(dy * xhat), dbeta = sum(dy)

Temporaries are kept by shape, so that a training loop does not allocate; results are always new
arrays, and every element of a buffer is written before it is read.
"""

import numpy as np

_scratch = {}


def _buffer(shape, dtype):
    key = (shape, dtype.str)
    if key not in _scratch:
        _scratch[key] = np.empty(shape, dtype)
    return _scratch[key]


def layernorm_forward(x, gamma, beta, eps=1e-5):
    squares = _buffer(x.shape, x.dtype)
    centred = x - x[..., :1]
    centred -= centred.mean(axis=-1, keepdims=True)
    var = np.square(centred, out=squares).mean(axis=-1, keepdims=True)
    rstd = (1 / np.sqrt(var + eps)).astype(x.dtype)
    xhat = np.multiply(centred, rstd, out=centred)
    return gamma * xhat + beta, (xhat, rstd, gamma)


def layernorm_backward(dy, cache):
    xhat, rstd, gamma = cache
    product = _buffer(dy.shape, dy.dtype)
    g = dy * gamma
    projection = np.multiply(g, xhat, out=product).mean(axis=-1, keepdims=True)
    g -= g.mean(axis=-1, keepdims=True)
    g -= np.multiply(xhat, projection, out=product)
    g *= rstd
    return g, np.multiply(dy, xhat, out=product).sum(axis=(0, 1)), dy.sum(axis=(0, 1))
