"""Rows minus their mean, times a weight for each column."""

import numpy as np


def make_inputs(shape, seed):
    rng = np.random.Generator(np.random.Philox(seed))
    x = rng.standard_normal((shape["R"], shape["N"])).astype(np.float32)
    weight = (1 + 0.1 * rng.standard_normal(shape["N"])).astype(np.float32)
    return {"params": {}, "calls": [{"x": x, "weight": weight}]}


def reference(params, calls):
    found = []
    for call in calls:
        x = call["x"].astype(np.float64)
        y = call["weight"] * (x - x.mean(axis=1, keepdims=True))
        found.append({"y": y.astype(np.float32)})
    return found
