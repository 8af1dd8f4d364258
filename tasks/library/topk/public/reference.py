"""The k largest of each row, descending, with their indices (int64); ties in any order.

x is (batch, n) float32. The module interface is that of the public deck: ``Model(batch, n, k)``
with one buffer ``_dummy``, and ``get_inputs``, ``get_init_inputs`` at module level.
"""

import torch
from torch import nn

batch, n, k = 64, 8192, 8


class Model(nn.Module):
    """What a submission replaces."""

    def __init__(self, batch, n, k):
        super().__init__()
        self.batch, self.n, self.k = batch, n, k
        self.register_buffer("_dummy", torch.zeros(1))

    def forward(self, x):
        """Values and indices, (batch, k) each."""
        return torch.topk(x, self.k, dim=-1, largest=True, sorted=True)


def get_inputs():
    """Inputs of the default size."""
    return [torch.randn(batch, n)]


def get_init_inputs():
    """Arguments of the constructor."""
    return [batch, n, k]


def make_inputs(shape, seed, device="cpu"):
    """One call on normal rows."""
    rng = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(shape["batch"], shape["n"], device=device, generator=rng)
    init = [shape["batch"], shape["n"], shape["k"]]
    return {"params": {"init": init}, "calls": [{"x": x}]}


def make_weights(shape, seed, device="cpu"):
    """The state dict; nothing depends on it."""
    return {"_dummy": torch.zeros(1, device=device)}


def reference(params, calls):
    """The outputs of each call: values and indices."""
    k = params["init"][2]
    found = []
    for call in calls:
        values, places = call["x"].sort(dim=-1, descending=True, stable=True)
        found.append({"0": values[:, :k].contiguous(), "1": places[:, :k].contiguous()})
    return found
