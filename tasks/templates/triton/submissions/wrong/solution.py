"""Layer norm's habit: the mean is taken off first, which RMS norm does not do."""

import torch
import triton
import triton.language as tl
from torch import nn


class Model(nn.Module):
    def __init__(self, R, N):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(N, dtype=torch.bfloat16), requires_grad=False)

    def forward(self, x):
        y = torch.empty_like(x)
        rows, n = x.shape
        block = triton.next_power_of_2(n)
        warps = min(max(block // 512, 1), 16)
        _rows[(rows,)](x, self.weight, y, n, BLOCK=block, num_warps=warps)
        return y


@triton.jit
def _rows(x, weight, y, n, BLOCK: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * n
    at = tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + begin + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(v, axis=0) / n
    scale = 1.0 / tl.sqrt(tl.sum(v * v, axis=0) / n - mean * mean + 1e-6)
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + begin + at, (v * scale * w).to(tl.bfloat16), mask=inside)
