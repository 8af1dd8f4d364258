"""y = x · ((q - zero) · scale): 4-bit weights in groups of 128 rows, bfloat16 activations.

x is (M, K) bfloat16. ``w_q`` (K/2, N) uint8 holds two rows of q a byte: row 2r in the low nibble,
row 2r + 1 in the high one. ``scales`` and ``zeros`` are (K/128, N) bfloat16, a row for each group
of 128 rows of q; zeros are whole numbers from 0 to 15. y is (M, N) bfloat16. The module interface
is that of the public deck: ``Model(M, N, K, group)`` with three buffers, and ``get_inputs``,
``get_init_inputs`` at module level.
"""

import torch
from torch import nn

M, N, K, GROUP = 32, 12288, 4096, 128
SPREAD = 0.02  # standard deviation of the weights before they are quantised


def quantised(weight, group):
    """A float32 weight (K, N) as ``w_q``, ``scales``, ``zeros``: each group spans its range."""
    K, N = weight.shape
    grouped = weight.view(K // group, group, N)
    least, most = grouped.amin(dim=1, keepdim=True), grouped.amax(dim=1, keepdim=True)
    scales = (most - least).clamp(min=1e-8) / 15
    zeros = (-least / scales).round().clamp(0, 15)
    q = (grouped / scales + zeros).round().clamp(0, 15).to(torch.uint8).view(K, N)
    scales, zeros = (part.squeeze(1).to(torch.bfloat16) for part in (scales, zeros))
    return {"w_q": packed(q), "scales": scales, "zeros": zeros}


def packed(q):
    """Rows of q two and two: (K, N) to (K/2, N), the even row in the low nibble."""
    return q[0::2] | (q[1::2] << 4)


def unpacked(w_q):
    """The other way round."""
    return torch.stack([w_q & 15, w_q >> 4], dim=1).view(-1, w_q.shape[1])


class Model(nn.Module):
    """What a submission replaces."""

    def __init__(self, M, N, K, group=128):
        super().__init__()
        self.M, self.N, self.K, self.group = M, N, K, group
        for name, value in quantised(torch.randn(K, N) * SPREAD, group).items():
            self.register_buffer(name, value)

    def forward(self, x):
        """(M, N) bfloat16."""
        scales, zeros = (
            part.repeat_interleave(self.group, dim=0) for part in (self.scales, self.zeros)
        )
        return x @ ((unpacked(self.w_q).to(torch.bfloat16) - zeros) * scales)


def get_inputs():
    """Inputs of the default size."""
    return [torch.randn(M, K, dtype=torch.bfloat16)]


def get_init_inputs():
    """Arguments of the constructor."""
    return [M, N, K, GROUP]


def make_inputs(shape, seed, device="cpu"):
    """One call on normal values."""
    rng = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(shape["M"], shape["K"], device=device, generator=rng).to(torch.bfloat16)
    init = [shape["M"], shape["N"], shape["K"], shape.get("group", GROUP)]
    return {"params": {"init": init}, "calls": [{"x": x}]}


def make_weights(shape, seed, device="cpu"):
    """The state dict: normal weights, quantised group by group."""
    rng = torch.Generator(device=device).manual_seed(seed + 1)
    weight = torch.randn(shape["K"], shape["N"], device=device, generator=rng) * SPREAD
    return quantised(weight, shape.get("group", GROUP))


def reference(params, calls):
    """The output of each call in float64, before it is rounded to bfloat16."""
    w_q, scales, zeros = (params["weights"][name] for name in ("w_q", "scales", "zeros"))
    group = params["init"][3]
    scales, zeros = (part.double().repeat_interleave(group, dim=0) for part in (scales, zeros))
    weight = (unpacked(w_q).double() - zeros) * scales
    return [{"y": (call["x"].double() @ weight).float()} for call in calls]
