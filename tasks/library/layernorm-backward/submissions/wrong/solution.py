"""Layer norm, forward and backward, in one pass over the data for the statistics.

mean and mean of squares come from a single sweep (var = E[x^2] - E[x]^2), so x is read once. The
backward uses the closed form dx = r * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * gamma.
"""

import numpy as np


def layernorm_forward(x, gamma, beta, eps=1e-5):
    mean = x.mean(axis=-1, keepdims=True)
    var = np.maximum((x * x).mean(axis=-1, keepdims=True) - mean * mean, 0)
    rstd = (1.0 / np.sqrt(var + eps)).astype(x.dtype)
    xhat = (x - mean) * rstd
    return gamma * xhat + beta, (xhat, rstd, gamma)


def layernorm_backward(dy, cache):
    xhat, rstd, gamma = cache
    g = dy * gamma
    dx = rstd * (
        g - g.mean(axis=-1, keepdims=True) - xhat * (g * xhat).mean(axis=-1, keepdims=True)
    )
    return dx, (dy * xhat).sum(axis=(0, 1)), dy.sum(axis=(0, 1))


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, 2, 3, 8))
    gamma, beta = rng.standard_normal((2, 8))
    y, cache = layernorm_forward(x, gamma, beta)
    dx, _, _ = layernorm_backward(dy, cache)
    moved = x.copy()
    moved[1, 2, 3] += 1e-6
    numeric = (np.sum(layernorm_forward(moved, gamma, beta)[0] * dy) - np.sum(y * dy)) / 1e-6
    print("dx", dx[1, 2, 3], "finite difference", numeric)
