"""Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def _scaled_add(x, y, a, b, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(y + at, tl.load(x + at, mask=inside) * a + b, mask=inside)


def scaled_add(x, a, b):
    """y = a x + b."""
    y = torch.empty_like(x)
    _scaled_add[(triton.cdiv(x.numel(), 1024),)](x, y, a, b, x.numel(), BLOCK=1024)
    return y
