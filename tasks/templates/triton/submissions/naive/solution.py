"""Two launches: the scale of each row, then the product."""

import torch
import triton
import triton.language as tl
from torch import nn


class Model(nn.Module):
    def __init__(self, R, N):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(N, dtype=torch.bfloat16), requires_grad=False)

    def forward(self, x):
        rows, n = x.shape
        scale = torch.empty(rows, dtype=torch.float32, device=x.device)
        y = torch.empty_like(x)
        _scales[(rows,)](x, scale, n, BLOCK=128)
        _products[(rows, triton.cdiv(n, 128))](x, self.weight, scale, y, n, BLOCK=128)
        return y


@triton.jit
def _scales(x, scale, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    begin = row.to(tl.int64) * n
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        v = tl.load(x + begin + at, mask=at < n, other=0.0).to(tl.float32)
        total += v * v
    tl.store(scale + row, 1.0 / tl.sqrt(tl.sum(total, axis=0) / n + 1e-6))


@triton.jit
def _products(x, weight, scale, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    begin = row.to(tl.int64) * n
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + begin + at, mask=at < n, other=0.0).to(tl.float32)
    w = tl.load(weight + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + begin + at, (v * tl.load(scale + row) * w).to(tl.bfloat16), mask=at < n)
