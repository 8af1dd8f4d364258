"""Softmax of rows, in float64; NumPy arrays or CUDA tensors."""

import numpy as np

ON_DEVICE = True


def make_inputs(shape, seed, device="cpu"):
    """Normal rows of standard deviation 2."""
    size = (shape["R"], shape["N"])
    if device == "cpu":
        rng = np.random.Generator(np.random.Philox(seed))
        x = (2 * rng.standard_normal(size)).astype(shape["dtype"])
    else:
        import torch  # noqa: PLC0415 - CPU machines have none

        seeded = torch.Generator(device=device)
        seeded.manual_seed(seed)
        x = 2 * torch.randn(size, device=device, generator=seeded)
    return {"params": {}, "calls": [{"x": x}]}


def reference(params, calls):
    """The outputs of each call: ``y``."""
    return [{"y": _softmax(call["x"])} for call in calls]


def _softmax(x):
    if isinstance(x, np.ndarray):
        exact = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        return (exact / exact.sum(axis=1, keepdims=True)).astype(x.dtype)
    return x.double().softmax(dim=1).to(x.dtype)
