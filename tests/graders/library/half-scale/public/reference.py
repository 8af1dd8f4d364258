"""log(1 + exp(x)) of bfloat16 bits; the reference stays in float64."""

import numpy as np


def make_inputs(shape, seed):
    rng = np.random.Generator(np.random.Philox(seed))
    x = rng.standard_normal((shape["R"], shape["N"])).astype(np.float32)
    return {"params": {}, "calls": [{"x": narrowed(x)}]}


def reference(params, calls):
    return [{"y": np.logaddexp(0.0, widened(call["x"]).astype(np.float64))} for call in calls]


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrowed(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
