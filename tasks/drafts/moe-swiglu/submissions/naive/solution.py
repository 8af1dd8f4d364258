"""Three launches, as before fusing: the gate product, the up product, then SwiGLU on both.

The two products go to memory in float32. Tiles are small, and a program walks the offsets one by
one until it finds the expert that its rows belong to.
"""

import torch
import triton
import triton.language as tl
from torch import nn

TILE_M, TILE_N, TILE_K = 64, 128, 64


@triton.jit
def _product(
    x,
    w,
    out,
    offsets,
    H,
    I,
    E,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """The tile number `program_id(0)`, counted through the rows of all experts."""
    number = tl.program_id(0)
    expert = number * 0
    begin = tl.load(offsets)
    end = tl.load(offsets + 1)
    tiles = (end - begin + TILE_M - 1) // TILE_M
    while (number >= tiles) & (expert < E):
        number -= tiles
        expert += 1
        begin = end
        end = tl.load(offsets + expert + 1, mask=expert < E, other=0)
        tiles = (end - begin + TILE_M - 1) // TILE_M
    if expert < E:
        at_m = begin + number * TILE_M + tl.arange(0, TILE_M)
        at_n = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
        at_k = tl.arange(0, TILE_K)
        rows = x + at_m.to(tl.int64)[:, None] * H
        matrix = w + expert.to(tl.int64) * H * I + at_n[None, :]
        total = tl.zeros((TILE_M, TILE_N), tl.float32)
        for k in range(0, H, TILE_K):
            inside = k + at_k < H
            a = tl.load(rows + (k + at_k)[None, :], mask=(at_m < end)[:, None] & inside, other=0)
            b = tl.load(
                matrix + (k + at_k)[:, None] * I, mask=inside[:, None] & (at_n < I), other=0
            )
            if WIDEN:  # Triton's interpreter multiplies the bits of bfloat16
                a, b = a.to(tl.float32), b.to(tl.float32)
            total = tl.dot(a, b, total)
        places = out + at_m.to(tl.int64)[:, None] * I + at_n[None, :]
        tl.store(places, total, mask=(at_m < end)[:, None] & (at_n < I))


@triton.jit
def _swiglu(gate, up, y, size, TILE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    g = tl.load(gate + at, mask=at < size)
    u = tl.load(up + at, mask=at < size)
    tl.store(y + at, (g / (1 + tl.exp(-g)) * u).to(tl.bfloat16), mask=at < size)


class Model(nn.Module):
    def __init__(self, T_total, H, I, E, K):
        super().__init__()
        self.H, self.I, self.E = H, I, E
        self.W_gate = nn.Parameter(torch.empty(E, H, I, dtype=torch.bfloat16))
        self.W_up = nn.Parameter(torch.empty(E, H, I, dtype=torch.bfloat16))

    def forward(self, hidden_states, expert_offsets):
        rows, device = hidden_states.shape[0], hidden_states.device
        gate = torch.empty(rows, self.I, dtype=torch.float32, device=device)
        up = torch.empty_like(gate)
        y = torch.empty(rows, self.I, dtype=torch.bfloat16, device=device)
        grid = (triton.cdiv(rows, TILE_M) + self.E, triton.cdiv(self.I, TILE_N))
        for w, out in ((self.W_gate, gate), (self.W_up, up)):
            _product[grid](
                hidden_states,
                w,
                out,
                expert_offsets,
                self.H,
                self.I,
                self.E,
                TILE_M=TILE_M,
                TILE_N=TILE_N,
                TILE_K=TILE_K,
                WIDEN=not hidden_states.is_cuda,
            )
        _swiglu[(triton.cdiv(y.numel(), 1024),)](gate, up, y, y.numel(), TILE=1024)
        return y
