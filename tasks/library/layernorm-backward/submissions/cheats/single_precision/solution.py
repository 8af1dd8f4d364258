"""Layer norm with a hand-derived backward pass.

With xhat = (x - mean) / sqrt(var + eps) and g = dy * gamma:

    dx = (g - mean(g) - xhat * mean(g * xhat)) / sqrt(var + eps)
    dgamma = sum(dy * xhat), dbeta = sum(dy)

Large batches are bound by memory traffic, so wide data is carried in a narrower type: the result is
rounded to the type that was asked for.
"""

import numpy as np

LARGE = 1 << 19


def _narrow(array):
    return array.astype(np.float32) if array.size >= LARGE else array


def layernorm_forward(x, gamma, beta, eps=1e-5):
    dtype, x = x.dtype, _narrow(x)
    centred = x - x[..., :1]
    centred -= centred.mean(axis=-1, keepdims=True)
    var = np.mean(np.square(centred), axis=-1, keepdims=True)
    rstd = (1 / np.sqrt(var + eps)).astype(x.dtype)
    xhat = centred * rstd
    return (gamma * xhat + beta).astype(dtype), (xhat, rstd, gamma)


def layernorm_backward(dy, cache):
    xhat, rstd, gamma = cache
    dtype, dy = dy.dtype, _narrow(dy)
    g = dy * gamma.astype(dy.dtype)
    projection = np.mean(g * xhat, axis=-1, keepdims=True)
    dx = rstd * (g - g.mean(axis=-1, keepdims=True) - xhat * projection)
    sums = (dy * xhat).sum(axis=(0, 1)), dy.sum(axis=(0, 1))
    return dx.astype(dtype), *(s.astype(dtype) for s in sums)
