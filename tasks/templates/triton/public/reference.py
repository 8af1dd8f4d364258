"""RMS norm of rows: y = x / sqrt(mean(x**2) + 1e-6) * weight, in float32.

The module interface is ``Model(R, N)`` with one parameter ``weight`` (N,) bfloat16; `make_inputs`,
`make_weights` and `reference` are what checks use. `reference` does not round to bfloat16.
"""

import torch
from torch import nn

EPS = 1e-6


class Model(nn.Module):
    """What a submission replaces."""

    def __init__(self, R, N):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(N, dtype=torch.bfloat16), requires_grad=False)

    def forward(self, x):
        """y, (R, N) bfloat16."""
        return rms_norm(x, self.weight).to(torch.bfloat16)


def rms_norm(x, weight):
    """y in float32."""
    exact = x.float()
    return exact * torch.rsqrt(exact.square().mean(dim=1, keepdim=True) + EPS) * weight.float()


def make_inputs(shape, seed, device="cpu"):
    """One call on normal rows. Only the seed decides the values."""
    rng = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(shape["R"], shape["N"], device=device, generator=rng).to(torch.bfloat16)
    return {"params": {"init": [shape["R"], shape["N"]]}, "calls": [{"x": x}]}


def make_weights(shape, seed, device="cpu"):
    """The state dict: a weight near 1."""
    rng = torch.Generator(device=device).manual_seed(seed + 1)
    weight = 1 + 0.25 * torch.randn(shape["N"], device=device, generator=rng)
    return {"weight": weight.to(torch.bfloat16)}


def reference(params, calls):
    """The outputs of each call."""
    return [{"y": rms_norm(call["x"], params["weights"]["weight"])} for call in calls]
