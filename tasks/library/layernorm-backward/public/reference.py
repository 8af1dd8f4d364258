"""Layer norm forward and backward in float64, recentred.

``x``, ``dy`` are (B, T, D); ``gamma``, ``beta`` are (D,). Outputs have the dtype of ``x``.
"""

import numpy as np

EPS = 1e-5


def make_inputs(shape, seed):
    """One call on N(0,1) data; ``dy`` has the scale of the gradient of a mean over the rows."""
    rng = np.random.Generator(np.random.Philox(seed))
    B, T, D, dtype = shape["B"], shape["T"], shape["D"], np.dtype(shape["dtype"])
    x = rng.standard_normal((B, T, D), dtype)
    dy = rng.standard_normal((B, T, D), dtype)
    dy *= dtype.type(1 / np.sqrt(B * T))
    gamma = 1 + 0.5 * rng.standard_normal(D, dtype)
    beta = 0.5 * rng.standard_normal(D, dtype)
    inputs = {"x": x, "gamma": gamma.astype(dtype), "beta": beta.astype(dtype), "dy": dy}
    return {"params": {"eps": EPS}, "calls": [inputs]}


def reference(params, calls):
    """The outputs of each call: ``y, dx, dgamma, dbeta``."""
    return [_one(call, float(params["eps"])) for call in calls]


def _one(call, eps):
    dtype, D = call["x"].dtype, call["x"].shape[-1]
    x = call["x"].astype(np.float64)
    dy, gamma, beta = (call[name].astype(np.float64) for name in ("dy", "gamma", "beta"))
    # Differences of neighbours are exact or nearly so; a mean of huge numbers is not.
    xhat = x - x[..., :1]
    xhat -= xhat.mean(axis=-1, keepdims=True)
    xhat -= xhat.mean(axis=-1, keepdims=True)
    var = np.einsum("btd,btd->bt", xhat, xhat)[..., None] / D
    rstd = 1 / np.sqrt(var + eps)
    xhat *= rstd
    dxhat = dy * gamma
    projection = np.einsum("btd,btd->bt", dxhat, xhat)[..., None] / D
    dx = rstd * (dxhat - dxhat.mean(axis=-1, keepdims=True) - xhat * projection)
    outputs = {
        "y": gamma * xhat + beta,
        "dx": dx,
        "dgamma": np.einsum("btd,btd->d", dy, xhat),
        "dbeta": dy.sum(axis=(0, 1)),
    }
    return {name: value.astype(dtype) for name, value in outputs.items()}
