"""One Triton kernel: grouped GEMM with both products on the same rows, SwiGLU in its epilogue.

A program computes one tile of BLOCK_M rows x BLOCK_N columns of one expert, with two float32
accumulators in registers: each block of hidden states is read once for gate and up. Tiles come
through TMA descriptors (rows behind an expert's end are its neighbour's; they are computed and not
stored). Which expert a program works for follows from the offsets on the device: every program
counts the tiles of all experts and finds its own in their running sum, so nothing waits for the
host, and the grid is the most that there can be: a partial tile more for each expert.

Programs of an expert run rows first, GROUP_M tiles of them, so that a tile of weights serves
GROUP_M programs while it is in the L2.

What bounds it: tensor cores. Arithmetic is 6.6, 0.14 and 4.4 TFLOP, traffic 6.0, 0.9 and 5.4 GB,
so all three shapes are compute-bound on an H200 (989 TFLOP/s against 4.8 TB/s). At 60% of that
peak: 11.1, 0.23 and 7.4 ms. The second shape has 1024 tiles for 132 processors, 7.8 waves, of
which it loses 3%. One program holds 192 KB of shared memory (STAGES x (16 + 2 x 16) KB), so one
runs per processor and its epilogue is not hidden: about 2% at H = 4096, 4% at H = 2048. To try
first, if it falls short: STAGES 3, BLOCK_N 64 with two programs a processor, GROUP_M 16.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor

BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 64
GROUP_M = 8
STAGES, WARPS = 4, 8


@triton.jit
def _grouped_swiglu(
    x,  # descriptors: (rows, H), (E * H, I), (E * H, I)
    w_gate,
    w_up,
    y,
    offsets,
    H,
    I,
    E,
    EXPERTS: tl.constexpr,  # E, rounded up to a power of two
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    WIDEN: tl.constexpr,
):
    program = tl.program_id(0)
    columns = tl.cdiv(I, BLOCK_N)
    numbers = tl.arange(0, EXPERTS)
    begins = tl.load(offsets + numbers, mask=numbers < E, other=0)
    ends = tl.load(offsets + numbers + 1, mask=numbers < E, other=0)
    tiles = (ends - begins + BLOCK_M - 1) // BLOCK_M * columns
    upto = tl.cumsum(tiles, 0)
    expert = tl.sum((upto <= program).to(tl.int32), 0)
    if expert < E:
        own = numbers == expert
        local = program - tl.sum(tl.where(numbers < expert, tiles, 0), 0)
        begin = tl.sum(tl.where(own, begins, 0), 0)
        end = tl.sum(tl.where(own, ends, 0), 0)
        height = (end - begin + BLOCK_M - 1) // BLOCK_M
        group = local // (GROUP_M * columns)
        size = min(height - group * GROUP_M, GROUP_M)
        inside = local % (GROUP_M * columns)
        row = begin + (group * GROUP_M + inside % size) * BLOCK_M
        column = inside // size * BLOCK_N
        gate = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, H, BLOCK_K):
            a = x.load([row, k])
            b_gate = w_gate.load([expert * H + k, column])
            b_up = w_up.load([expert * H + k, column])
            if WIDEN:  # Triton's interpreter multiplies the bits of bfloat16
                a, b_gate, b_up = a.to(tl.float32), b_gate.to(tl.float32), b_up.to(tl.float32)
            gate = tl.dot(a, b_gate, gate)
            up = tl.dot(a, b_up, up)
        result = gate / (1 + tl.exp(-gate)) * up
        at_m = row + tl.arange(0, BLOCK_M)
        at_n = column + tl.arange(0, BLOCK_N)
        places = y + at_m.to(tl.int64)[:, None] * I + at_n[None, :]
        tl.store(places, result.to(tl.bfloat16), mask=(at_m < end)[:, None] & (at_n < I)[None, :])


class Model(nn.Module):
    def __init__(self, T_total, H, I, E, K):
        super().__init__()
        self.T_total, self.H, self.I, self.E, self.K = T_total, H, I, E, K
        self.W_gate = nn.Parameter(torch.empty(E, H, I, dtype=torch.bfloat16))
        self.W_up = nn.Parameter(torch.empty(E, H, I, dtype=torch.bfloat16))

    def forward(self, hidden_states, expert_offsets):
        rows, H, I, E = hidden_states.shape[0], self.H, self.I, self.E
        y = torch.empty(rows, I, dtype=torch.bfloat16, device=hidden_states.device)
        block = [BLOCK_K, BLOCK_N]
        x = TensorDescriptor.from_tensor(hidden_states.contiguous(), [BLOCK_M, BLOCK_K])
        gate = TensorDescriptor.from_tensor(self.W_gate.detach().view(E * H, I), block)
        up = TensorDescriptor.from_tensor(self.W_up.detach().view(E * H, I), block)
        most = (triton.cdiv(rows, BLOCK_M) + E) * triton.cdiv(I, BLOCK_N)
        _grouped_swiglu[(most,)](
            x,
            gate,
            up,
            y,
            expert_offsets,
            H,
            I,
            E,
            EXPERTS=triton.next_power_of_2(E),
            BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N,
            BLOCK_K=BLOCK_K,
            GROUP_M=GROUP_M,
            WIDEN=not hidden_states.is_cuda,
            num_warps=WARPS,
            num_stages=STAGES,
        )
        return y
