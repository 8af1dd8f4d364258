"""Layer norm, forward and backward, written straight from the formulas.

dx follows from the chain rule through xhat, the variance and the mean, one term at a time. Every
step allocates its result, and the backward pass is given all that the forward pass computed.
Two-pass variance: the mean first, then the mean of squares of what is left.
"""

import numpy as np


def layernorm_forward(x, gamma, beta, eps=1e-5):
    mean = x.mean(axis=-1, keepdims=True)
    centred = x - mean
    centred = centred - centred.mean(axis=-1, keepdims=True)  # what the rounding of the mean left
    var = (centred**2).mean(axis=-1, keepdims=True)
    std = np.sqrt(var + x.dtype.type(eps))
    xhat = centred / std
    return gamma * xhat + beta, {"centred": centred, "std": std, "xhat": xhat, "gamma": gamma}


def layernorm_backward(dy, cache):
    centred, std, xhat, gamma = cache["centred"], cache["std"], cache["xhat"], cache["gamma"]
    D = dy.shape[-1]
    dbeta = dy.sum(axis=(0, 1))
    dgamma = (dy * xhat).sum(axis=(0, 1))
    dxhat = dy * gamma
    dvar = (dxhat * xhat).sum(axis=-1, keepdims=True) / std / -2 / std
    dmean = -(dxhat / std).sum(axis=-1, keepdims=True)
    dx = dxhat / std + dvar * (2 * centred / D) + dmean / D
    return dx, dgamma, dbeta
