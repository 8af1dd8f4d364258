"""One program a row; the row stays in registers between its three passes."""

import numpy as np

try:
    import torch
    import triton
    import triton.language as tl
except ImportError:
    torch = None


def softmax(x):
    if torch is None or isinstance(x, np.ndarray):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    rows, n = x.shape
    block = triton.next_power_of_2(n)
    warps = min(max(block // 512, 4), 16)
    _rows[(rows,)](x, y, x.stride(0), x.stride(1), n, BLOCK=block, num_warps=warps)
    return y


if torch is not None:

    @triton.jit
    def _rows(x, y, row_stride, column_stride, n, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        at = tl.arange(0, BLOCK)
        inside = at < n
        v = tl.load(x + row * row_stride + at * column_stride, mask=inside, other=float("-inf"))
        e = tl.exp(v - tl.max(v, 0))
        tl.store(y + row * n + at, e / tl.sum(e, 0), mask=inside)
