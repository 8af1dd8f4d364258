"""Sum of each row, times a scale."""

import numpy as np


def make_inputs(shape, seed):
    rng = np.random.Generator(np.random.Philox(seed))
    x = rng.standard_normal((shape["R"], shape["N"])).astype(shape["dtype"])
    return {"params": {"scale": 2.0}, "calls": [{"x": x}]}


def reference(params, calls):
    return [
        {"y": (params["scale"] * call["x"].sum(axis=1, dtype=np.float64)).astype(call["x"].dtype)}
        for call in calls
    ]
