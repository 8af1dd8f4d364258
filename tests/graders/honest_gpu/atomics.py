"""Row sums by atomic additions of many blocks, then a second kernel."""

import numpy as np

try:
    import torch
    import triton
    import triton.language as tl
except ImportError:
    torch = None

BLOCK = 1024


def softmax(x):
    if torch is None or isinstance(x, np.ndarray):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)
    x = x.contiguous()
    rows, n = x.shape
    total = torch.zeros(rows, device=x.device)
    y = torch.empty_like(x)
    grid = (rows, triton.cdiv(n, BLOCK))
    _sums[grid](x, total, n, BLOCK=BLOCK)
    _shares[grid](x, total, y, n, BLOCK=BLOCK)
    return y


if torch is not None:

    @triton.jit
    def _sums(x, total, n, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
        tl.atomic_add(total + row, tl.sum(tl.exp(v - 8.0), 0))

    @triton.jit
    def _shares(x, total, y, n, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
        tl.store(y + row * n + at, tl.exp(v - 8.0) / tl.load(total + row), mask=at < n)
