"""y = a x + b."""

import numpy as np


def make_inputs(shape, seed):
    """Normal draws, and two scalars that float32 holds exactly."""
    rng = np.random.Generator(np.random.Philox(seed))
    x = rng.standard_normal(shape["N"], np.float32)
    return {"params": {"a": 2.5, "b": -1.25}, "calls": [{"x": x}]}


def reference(params, calls):
    """In fp64; ``milliseconds`` is not compared."""
    return [
        {
            "y": (params["a"] * call["x"].astype(np.float64) + params["b"]).astype(np.float32),
            "milliseconds": np.zeros(()),
        }
        for call in calls
    ]
