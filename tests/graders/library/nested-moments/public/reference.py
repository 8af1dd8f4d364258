"""Sum, number of positive elements and last element of each row."""

import numpy as np


def make_inputs(shape, seed):
    rng = np.random.Generator(np.random.Philox(seed))
    x = rng.standard_normal((shape["R"], shape["N"])).astype(np.float32)
    return {"params": {}, "calls": [{"x": x}]}


def reference(params, calls):
    return [
        {
            "y": call["x"].sum(axis=1, dtype=np.float64).astype(np.float32),
            "state.count": (call["x"] > 0).sum(axis=1),
            "state.last": call["x"][:, -1].copy(),
        }
        for call in calls
    ]
