"""Layer norm, forward and backward, in NumPy.

Forward, for each row of D elements, with r = 1 / sqrt(var + eps):

    xhat = (x - mean) * r            y = gamma * xhat + beta

Backward. With g = dy * gamma (the gradient of xhat):

    dbeta  = sum over rows of dy
    dgamma = sum over rows of dy * xhat
    dx     = g through dxhat/dx. xhat_i depends on x_j directly (r where i = j), through the mean
             (-r / D for every j), and through var (-xhat_i * xhat_j * r / D), so
           = r * (g - mean(g) - xhat * mean(g * xhat))

Two row reductions, mean(g) and mean(g * xhat), are all that dx needs beside xhat and r.

The cache holds x and gamma by reference and two numbers a row: what is left of the mean after the
row's first element is subtracted, and r. xhat is formed again from x in two subtractions and a
multiplication, which cost less than storing and reading a second (B, T, D) array: both passes are
bound by memory.

Rows are processed in tiles that stay in a core's L2, so that each pass reads its operands once and
writes its result once. Sums over all rows are taken within a tile in the dtype of x and across
tiles in float64. Numerical stability: see `_centre`. Time and memory: see README.md.
"""

import numpy as np

TILE_BYTES = 256 * 1024  # of one operand; four of them fit an L2 of 1 MB


def layernorm_forward(x, gamma, beta, eps=1e-5):
    """(y, cache) for x (B, T, D); y has the dtype of x."""
    rows, D = x.shape[0] * x.shape[1], x.shape[2]
    flat = x.reshape(rows, D)  # a view for the usual layouts, else one copy
    y = np.empty((rows, D), x.dtype)
    rest, rstd = np.empty((2, rows, 1), x.dtype)
    for tile in _tiles(rows, D, x.dtype):
        centred = y[tile]
        rest[tile] = np.subtract(flat[tile], flat[tile, :1], out=centred).mean(axis=1, keepdims=True)
        centred -= rest[tile]
        var = np.einsum("rd,rd->r", centred, centred)[:, None] / D
        rstd[tile] = 1 / np.sqrt(var + eps)
        centred *= rstd[tile]
        centred *= gamma
        centred += beta
    return y.reshape(x.shape), (flat, rest, rstd, gamma)


def layernorm_backward(dy, cache):
    """(dx, dgamma, dbeta) for dy (B, T, D) and the cache of the forward pass."""
    x, rest, rstd, gamma = cache
    rows, D = x.shape
    flat = dy.reshape(rows, D)
    dx = np.empty((rows, D), x.dtype)
    dgamma, dbeta = np.zeros((2, D))
    tiles = _tiles(rows, D, x.dtype)
    scratch = np.empty((tiles[0].stop, D), x.dtype)
    for tile in tiles:
        gradient, xhat = flat[tile], scratch[: tile.stop - tile.start]
        _centre(x[tile], rest[tile], out=xhat)
        xhat *= rstd[tile]
        dgamma += np.einsum("rd,rd->d", gradient, xhat)
        dbeta += gradient.sum(axis=0)
        g = np.multiply(gradient, gamma, out=dx[tile])
        xhat *= np.einsum("rd,rd->r", g, xhat)[:, None] / D
        g -= g.mean(axis=1, keepdims=True)
        g -= xhat
        g *= rstd[tile]
    return dx.reshape(dy.shape), dgamma.astype(x.dtype), dbeta.astype(x.dtype)


def _centre(x, rest, out):
    """x - mean, without forming the mean.

    E[x^2] - E[x]^2 loses every digit once |mean| / std nears 1 / sqrt(machine epsilon). Centring
    first cures that, but a mean is itself rounded to the dtype of x: at 1e8 by 1e-8 in float64 and
    by 4 in float32. The first element of a row is exact, its difference to the others is exact or
    nearly so when the offset dwarfs the spread, and the mean of what is left (`rest`) is small. The
    two subtractions are those of the forward pass, so they give the same bits.
    """
    np.subtract(x, x[:, :1], out=out)
    out -= rest


def _tiles(rows, D, dtype):
    step = max(1, TILE_BYTES // (D * dtype.itemsize))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
