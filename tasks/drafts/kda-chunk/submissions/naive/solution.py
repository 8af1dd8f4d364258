"""Kimi Delta Attention token by token: one program carries the state of one head."""

import torch
import triton
import triton.language as tl
from torch import nn


class Model(nn.Module):
    def __init__(self, B, T, H, K, V, chunk=64):
        super().__init__()

    def forward(self, q, k, v, g, beta):
        B, T, H, K = q.shape
        o = torch.empty(v.shape, dtype=torch.float32, device=v.device)
        _tokens[(B * H,)](q, k, v, g, beta, o, T, H, K**-0.5, K=K, V=v.shape[-1], num_warps=8)
        return o.to(v.dtype)


@triton.jit
def _tokens(q, k, v, g, beta, o, T, H, scale, K: tl.constexpr, V: tl.constexpr):
    head = tl.program_id(0)
    feature = tl.arange(0, K)
    value = tl.arange(0, V)
    row = (head // H) * T * H + head % H
    S = tl.zeros((K, V), tl.float32)
    for _ in range(T):
        key = tl.load(k + row * K + feature).to(tl.float32)
        query = tl.load(q + row * K + feature).to(tl.float32) * scale
        S *= tl.exp(tl.load(g + row * K + feature))[:, None]
        new = tl.load(v + row * V + value).to(tl.float32) - tl.sum(key[:, None] * S, axis=0)
        S += key[:, None] * (tl.load(beta + row).to(tl.float32) * new)[None, :]
        out = tl.sum(query[:, None] * S, axis=0)
        tl.store(o + row * V + value, out)
        row += H
