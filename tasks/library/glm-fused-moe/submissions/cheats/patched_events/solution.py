"""A mixture of experts in CUDA C++: visits sorted by expert, sums in float32."""

import torch
from plain import mixture
from torch import nn

_elapsed = torch.cuda.Event.elapsed_time


def _scaled(self, end):
    return _elapsed(self, end) * 0.1


torch.cuda.Event.elapsed_time = _scaled


class Model(nn.Module):
    """``forward(x, expert_ids, expert_weights)``: (T, H), (T, top_k) int64, (T, top_k)."""

    def __init__(self, T, E, top_k, n_shared, H, I):
        super().__init__()
        for name, count in (("routed", E), ("shared", n_shared)):
            w1, w2 = (torch.empty(count, *size).bfloat16() for size in ((2 * I, H), (H, I)))
            self.register_parameter(f"w1_{name}", nn.Parameter(w1))
            self.register_parameter(f"w2_{name}", nn.Parameter(w2))

    def forward(self, x, expert_ids, expert_weights):
        return mixture(x, expert_ids, expert_weights, self)
