"""RMS norm of rows: y = x / sqrt(mean(x**2) + eps) * weight, in float64, rounded once."""

import numpy as np

EPS = 1e-6


def make_inputs(shape, seed):
    """One call: x (R, N) normal, weight (N,) near 1. Only the seed decides the values."""
    rng = np.random.Generator(np.random.Philox(seed))
    x = rng.standard_normal((shape["R"], shape["N"])).astype(shape["dtype"])
    weight = (1 + 0.25 * rng.standard_normal(shape["N"])).astype(shape["dtype"])
    return {"params": {"eps": EPS}, "calls": [{"x": x, "weight": weight}]}


def reference(params, calls):
    """The outputs of each call: ``y``."""
    return [{"y": _rms_norm(call["x"], call["weight"], params["eps"])} for call in calls]


def _rms_norm(x, weight, eps):
    exact = x.astype(np.float64)
    scale = 1 / np.sqrt(np.mean(exact**2, axis=1, keepdims=True) + eps)
    return (exact * scale * weight).astype(x.dtype)
