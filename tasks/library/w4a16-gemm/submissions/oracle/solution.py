"""y = x · ((q - zero) · scale) from packed 4-bit weights, in Triton: one launch a call.

`_product` computes yᵀ = weightᵀ · xᵀ, so that the 64 rows of a tensor core instruction are columns of
y and few rows of x waste little. A program takes BN columns, BM rows and a part of K. For each group
of 128 it reads a tile of packed weights (BN x 64 bytes that lie together), turns nibbles into bfloat16
in registers, and multiplies: 128 + q is put together from bits, so that no integer is converted;
128 is subtracted, then the zero (exact), then scaled (rounded once, to bfloat16, as the weights of
the public formula are). K is split until every SM reads; the last program of a tile adds the partial
sums in a fixed order.

Triton's interpreter has no products of bfloat16: on a CPU the same is done in float32.

The weights are packed anew once, when they are loaded or changed: a byte holds rows k and k + 64 of a
group, so that each nibble of a tile meets 64 consecutive columns of x.

Expected on an H200 (4.8 TB/s), not counting the launch (about 6 us, which bounds the small ones):
(1, 12288, 4096) 8 us, of which 5.6 is the least for 27 MB; (32, 12288, 4096) 9 us;
(16, 14336, 4096) 10 us; (1, 4096, 4096) 4 us; (256, 12288, 4096) 50 us, bound by reading x from L2 and
by the tensor cores (26 us). To tune: TILES and RESIDENT below.
"""

import os

import torch
import triton
import triton.language as tl
from torch import nn

TILES = (  # rows of x up to which it holds; tile; launch
    (16, {"BN": 64, "BM": 16}, {"num_warps": 4, "num_stages": 4}),
    (32, {"BN": 64, "BM": 32}, {"num_warps": 4, "num_stages": 4}),
    (64, {"BN": 128, "BM": 64}, {"num_warps": 4, "num_stages": 4}),
    # one program has all rows of (256, 12288), so a weight is unpacked once; bounding registers
    # (maxnreg) with three stages gives wrong sums in Triton 3.6
    (1 << 30, {"BN": 128, "BM": 256}, {"num_warps": 8, "num_stages": 3}),
)
SPLIT_UP_TO = 64  # rows of x: with more of them tensor cores are the bound
RESIDENT = 4  # programs that an SM holds at once, at least, where K is split
LEAST_GROUPS = 4  # of a split
MOST_SPLITS = 8
GROUP = 128
HALF = 64  # bytes of a column in a group

_on_cpu = os.environ.get("TRITON_INTERPRET") == "1"
_spaces = {}  # by device and stream: partial sums and counters
_counts = {}


class Model(nn.Module):
    """The public deck's module; see the prompt."""

    def __init__(self, M, N, K, group=GROUP):
        super().__init__()
        if group != GROUP:
            raise ValueError(f"groups of {GROUP} only")
        self.N, self.K = N, K
        self.register_buffer("w_q", torch.zeros(K // 2, N, dtype=torch.uint8))
        self.register_buffer("scales", torch.zeros(K // group, N, dtype=torch.bfloat16))
        self.register_buffer("zeros", torch.zeros(K // group, N, dtype=torch.bfloat16))
        self._source = self._version = self._packed = None

    def forward(self, x):
        """(M, N) bfloat16."""
        x = x.contiguous()
        M, N = x.shape[0], self.N
        y = torch.empty(M, N, dtype=torch.bfloat16, device=x.device)
        tile, launch = next(found for most, *found in TILES if most >= M)
        columns, rows = triton.cdiv(N, tile["BN"]), triton.cdiv(M, tile["BM"])
        splits = self._splits(columns * rows, x.device) if M <= SPLIT_UP_TO else 1
        partial, arrived = _space(
            x.device, columns * rows * splits * tile["BN"] * tile["BM"], columns * rows
        )
        _product[(columns, rows, splits)](
            x,
            self._weights(),
            self.scales,
            self.zeros,
            y,
            partial,
            arrived,
            M,
            N,
            self.K,
            SPLITS=splits,
            ON_GPU=not _on_cpu,
            **tile,
            **launch,
        )
        return y

    def _splits(self, tiles, device):
        """A power of two, so that few sizes are compiled."""
        wanted = _processors(device) * RESIDENT // tiles
        most = min(MOST_SPLITS, self.K // GROUP // LEAST_GROUPS, wanted)
        return 1 << max(most.bit_length() - 1, 0) if most > 0 else 1

    def _weights(self):
        """(K/128, N, 64) uint8, made anew when ``w_q`` is another or has changed."""
        source = self.w_q
        if source is not self._source or source._version != self._version:
            self._source, self._version = source, source._version
            q = torch.stack([source & 15, source >> 4], dim=1).view(-1, 2, HALF, self.N)
            self._packed = (q[:, 0] | (q[:, 1] << 4)).transpose(1, 2).contiguous()
        return self._packed


def _space(device, floats, counters):
    """Workspace of the current stream. Counters are zero between calls: the last program resets."""
    stream = 0 if _on_cpu else torch.cuda.current_stream(device).cuda_stream
    held = _spaces.get((device, stream))
    if held is None or held[0].numel() < floats or held[1].numel() < counters:
        held = (
            torch.empty(floats, dtype=torch.float32, device=device),
            torch.zeros(counters, dtype=torch.int32, device=device),
        )
        _spaces[device, stream] = held
    return held


def _processors(device):
    if device not in _counts:
        _counts[device] = (
            8 if _on_cpu else torch.cuda.get_device_properties(device).multi_processor_count
        )
    return _counts[device]


@triton.jit
def _rounded(values):
    """bfloat16, to nearest even: what hardware does, and the interpreter does not."""
    bits = values.to(tl.uint32, bitcast=True)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return bits.to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit
def _halves(q, zero, scale, ON_GPU: tl.constexpr):
    """Both nibbles of each byte as (q - zero) · scale, in bfloat16 on a GPU."""
    if ON_GPU:
        low, high = tl.inline_asm_elementwise(
            asm="""{
                .reg .b32 a, b, c, d, e;
                mov.b32 e, 0x43004300;
                prmt.b32 a, $4, 0, 0x4140;
                prmt.b32 b, $4, 0, 0x4342;
                shr.b32 c, a, 4;
                shr.b32 d, b, 4;
                lop3.b32 a, a, 0x000F000F, e, 0xEA;
                lop3.b32 b, b, 0x000F000F, e, 0xEA;
                lop3.b32 c, c, 0x000F000F, e, 0xEA;
                lop3.b32 d, d, 0x000F000F, e, 0xEA;
                sub.bf16x2 a, a, e;
                sub.bf16x2 b, b, e;
                sub.bf16x2 c, c, e;
                sub.bf16x2 d, d, e;
                sub.bf16x2 a, a, $5;
                sub.bf16x2 b, b, $6;
                sub.bf16x2 c, c, $5;
                sub.bf16x2 d, d, $6;
                mul.bf16x2 $0, a, $7;
                mul.bf16x2 $1, b, $8;
                mul.bf16x2 $2, c, $7;
                mul.bf16x2 $3, d, $8;
            }""",
            constraints="=r,=r,=r,=r,r,r,r,r,r",
            args=[q, zero, scale],
            dtype=(tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=4,
        )
    else:
        zero, scale = zero.to(tl.float32), scale.to(tl.float32)
        low = ((q & 15).to(tl.float32) - zero) * scale
        high = ((q >> 4).to(tl.float32) - zero) * scale
    return low, high


@triton.jit
def _product(
    x,
    weights,
    scales,
    zeros,
    y,
    partial,
    arrived,
    M,
    N,
    K,
    SPLITS: tl.constexpr,
    ON_GPU: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
):
    column = tl.program_id(0)
    row = tl.program_id(1)
    split = tl.program_id(2)
    groups = K // 128
    each = tl.cdiv(groups, SPLITS)
    n = column * BN + tl.arange(0, BN)
    m = row * BM + tl.arange(0, BM)
    j = tl.arange(0, 64)
    has_n = n < N
    has_m = m < M
    acc = tl.zeros((BN, BM), tl.float32)
    for g in range(split * each, min(split * each + each, groups)):
        q = tl.load(
            weights + (g * N + n).to(tl.int64)[:, None] * 64 + j[None, :],
            mask=has_n[:, None],
            other=0,
        )
        scale = tl.load(scales + g * N + n, mask=has_n, other=0.0)
        zero = tl.load(zeros + g * N + n, mask=has_n, other=0.0)
        left = x + m[None, :] * K + g * 128 + j[:, None]
        x_low = tl.load(left, mask=has_m[None, :], other=0.0)
        x_high = tl.load(left + 64, mask=has_m[None, :], other=0.0)
        low, high = _halves(q, zero[:, None], scale[:, None], ON_GPU)
        acc = tl.dot(low, x_low.to(low.dtype), acc)
        acc = tl.dot(high, x_high.to(low.dtype), acc)

    is_last = True
    if SPLITS > 1:
        at = tl.arange(0, BN)[:, None] * BM + tl.arange(0, BM)[None, :]
        tile = row * tl.num_programs(0) + column
        mine = partial + tile * SPLITS * BN * BM
        tl.store(mine + split * BN * BM + at, acc)
        tl.debug_barrier()  # all of the program has written before one thread says so
        is_last = tl.atomic_add(arrived + tile, 1, sem="acq_rel") == SPLITS - 1
        if is_last:
            acc = tl.zeros((BN, BM), tl.float32)
            for other in range(SPLITS):
                acc += tl.load(mine + other * BN * BM + at, cache_modifier=".cg")
            tl.store(arrived + tile, 0)
    if is_last:
        values = acc.to(tl.bfloat16) if ON_GPU else _rounded(acc)
        tl.store(y + m[None, :] * N + n[:, None], values, mask=has_n[:, None] & has_m[None, :])
