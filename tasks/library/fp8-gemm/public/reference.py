"""y = (x · weightᵀ) · weight_scale: a matrix product of float8 e4m3 with a scale per output column.

x is (M, K) and weight (N, K), both float8 e4m3; weight_scale is (N,) float32; y is (M, N) bfloat16.
The module interface is that of the public deck: ``Model(M, N, K)`` with two buffers, and
``get_inputs``, ``get_init_inputs`` at module level.
"""

import torch
from torch import nn

M, N, K = 4096, 4096, 4096
LARGEST = 448.0  # of e4m3
SPREAD = 0.02  # standard deviation of the weights before they are quantised
LIMIT = 4.0  # x is uniform within +-LIMIT
ROWS = 4096  # of weight, converted to float64 at a time


def quantised(weight):
    """A float32 weight (N, K) as e4m3 with a scale per row: the row's largest becomes 448."""
    scale = weight.abs().amax(dim=1).clamp(min=1e-8) / LARGEST
    return (weight / scale[:, None]).to(torch.float8_e4m3fn), scale


class Model(nn.Module):
    """What a submission replaces."""

    def __init__(self, M, N, K):
        super().__init__()
        self.M, self.N, self.K = M, N, K
        weight, scale = quantised(torch.randn(N, K) * SPREAD)
        self.register_buffer("weight", weight)
        self.register_buffer("weight_scale", scale)

    def forward(self, x):
        """(M, N) bfloat16."""
        product = x.to(torch.bfloat16) @ self.weight.to(torch.bfloat16).T
        return (product.float() * self.weight_scale).to(torch.bfloat16)


def get_inputs():
    """Inputs of the default size."""
    return [((torch.rand(M, K) * 2 - 1) * LIMIT).to(torch.float8_e4m3fn)]


def get_init_inputs():
    """Arguments of the constructor."""
    return [M, N, K]


def make_inputs(shape, seed, device="cpu"):
    """One call on uniform values."""
    rng = torch.Generator(device=device).manual_seed(seed)
    x = torch.rand(shape["M"], shape["K"], device=device, generator=rng)
    x = ((x * 2 - 1) * LIMIT).to(torch.float8_e4m3fn)
    init = [shape["M"], shape["N"], shape["K"]]
    return {"params": {"init": init}, "calls": [{"x": x}]}


def make_weights(shape, seed, device="cpu"):
    """The state dict: normal weights, quantised row by row."""
    rng = torch.Generator(device=device).manual_seed(seed + 1)
    weight = torch.randn(shape["N"], shape["K"], device=device, generator=rng) * SPREAD
    weight, scale = quantised(weight)
    return {"weight": weight, "weight_scale": scale}


def reference(params, calls):
    """The output of each call, before it is rounded to bfloat16.

    A product of two e4m3 numbers has 8 significant bits and is a multiple of 2**-18, so float64
    sums up to 2**17 of them without any rounding, in whatever order.
    """
    weight, scale = (params["weights"][name] for name in ("weight", "weight_scale"))
    found = []
    for call in calls:
        x = call["x"].double()
        parts = [x @ part.double().T for part in weight.split(ROWS)]
        found.append({"y": (torch.cat(parts, dim=1) * scale.double()).float()})
    return found
