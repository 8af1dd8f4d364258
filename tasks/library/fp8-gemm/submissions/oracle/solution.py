"""y = (x · weightᵀ) · weight_scale on the float8 tensor cores, in Triton.

Three kernels:

- `_product`, for M above THIN: persistent, both operands by TMA into swizzled shared memory, so many
  stages ahead that tensor cores wait for nothing; tiles of one group of rows follow each other, so
  that what they share stays in L2. Accumulators are the tensor cores' own (13 fraction bits on Hopper:
  rms 2.6e-3 at K = 8192, bfloat16 rounding included). The scale is applied once, in the epilogue.
- `_product_thin`, for M up to THIN, which is bound by reading the weights: yᵀ = weight · xᵀ, so that the 64
  rows of a tensor core instruction are columns of y, and K is split so that every SM reads. Partial
  sums go to a workspace; the last program of a column adds them in a fixed order.
- `_padded`, only where rows are no multiple of 16 bytes (K = 4127), which TMA cannot read: x is copied
  into rows that are, each call. The weights are copied once, when they are loaded or changed.

Expected on an H200 (dense float8 1979 TFLOP/s, 4.8 TB/s), not counting the launch:
(4096, 4096, 4096) 0.12 ms and (4096, 14336, 4096) 0.42 ms, bound by the tensor cores at 55 to 65% of
their peak under the power limit; (4096, 4096, 4127) 0.14 ms, of which 0.01 for the copy;
(32, 8192, 8192) 0.020 ms, of which 0.014 is the least for 67 MB of weights. To tune: WIDE, THIN_TILE,
SPLITS below.
"""

import os

import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor

THIN = 64  # rows of x up to which K is split
WIDE = {"BM": 128, "BN": 256, "BK": 128, "GROUP": 8}  # tile of `_product`
WIDE_LAUNCH = {"num_warps": 8, "num_stages": 4}
THIN_TILE = {"BN": 128, "BK": 128}
THIN_LAUNCH = {"num_warps": 4, "num_stages": 5}
SPLITS = 4  # of K in `_thin`: 64 columns of 128 make 256 programs of two a SM
LEAST_STEPS = 4  # of BK, below which a split costs more than it brings
ALIGN = 16  # bytes: rows that TMA reads begin at multiples of it

_on_cpu = os.environ.get("TRITON_INTERPRET") == "1"
_spaces = {}  # by device and stream: partial sums and counters of `_product_thin`
_counts = {}


class Model(nn.Module):
    """The public deck's module; see the prompt."""

    def __init__(self, M, N, K):
        super().__init__()
        self.M, self.N, self.K = M, N, K
        self.register_buffer("weight", torch.zeros(N, K, dtype=torch.float8_e4m3fn))
        self.register_buffer("weight_scale", torch.ones(N))
        self._source = self._version = self._rows = None
        self._views = {}

    def forward(self, x):
        """(M, N) bfloat16."""
        y = torch.empty(x.shape[0], self.N, dtype=torch.bfloat16, device=x.device)
        rows = _aligned(x)
        if x.shape[0] <= THIN:
            self._thin(rows, y)
        else:
            self._wide(rows, y)
        return y

    def _weight(self, tile):
        """A view of the weights for TMA, made anew when they are others or have changed."""
        weight = self.weight
        if weight is not self._source or weight._version != self._version:
            self._source, self._version = weight, weight._version
            self._rows, self._views = _aligned(weight), {}
        if tile not in self._views:
            self._views[tile] = TensorDescriptor.from_tensor(self._rows, list(tile))
        return self._views[tile]

    def _wide(self, x, y):
        M, N = y.shape
        BM, BN, BK = WIDE["BM"], WIDE["BN"], WIDE["BK"]
        by_tma = N % 8 == 0  # rows of y are multiples of 16 bytes
        programs = min(_processors(x.device), triton.cdiv(M, BM) * triton.cdiv(N, BN))
        _product[(programs,)](
            TensorDescriptor.from_tensor(x, [BM, BK]),
            self._weight((BN, BK)),
            self.weight_scale,
            TensorDescriptor.from_tensor(y, [BM, BN // 2]) if by_tma else y,
            M,
            N,
            self.K,
            PROGRAMS=programs,
            BY_TMA=by_tma,
            ON_GPU=not _on_cpu,
            **WIDE,
            **WIDE_LAUNCH,
        )

    def _thin(self, x, y):
        M, N = y.shape
        BN, BK = THIN_TILE["BN"], THIN_TILE["BK"]
        BM = max(16, triton.next_power_of_2(M))
        columns, steps = triton.cdiv(N, BN), triton.cdiv(self.K, BK)
        splits = max(1, min(SPLITS, steps // LEAST_STEPS))
        partial, arrived = _space(y.device, columns * splits * BN * BM, columns)
        _product_thin[(columns, splits)](
            TensorDescriptor.from_tensor(x, [BM, BK]),
            self._weight((BN, BK)),
            self.weight_scale,
            y,
            partial,
            arrived,
            M,
            N,
            self.K,
            SPLITS=splits,
            ON_GPU=not _on_cpu,
            BM=BM,
            **THIN_TILE,
            **THIN_LAUNCH,
        )


def _aligned(rows):
    """The rows, as they are or copied, so that each begins at a multiple of 16 bytes."""
    rows = rows.contiguous()
    count, length = rows.shape
    if length % ALIGN == 0 and rows.data_ptr() % ALIGN == 0:
        return rows
    room = triton.cdiv(length, ALIGN) * ALIGN
    copy = torch.empty(count, room, dtype=rows.dtype, device=rows.device)
    _padded[(triton.cdiv(count, 4), triton.cdiv(room, 1024))](
        rows.view(torch.uint8), copy.view(torch.uint8), count, length, room, R=4, C=1024
    )
    return copy


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
def _padded(source, target, count, length, room, R: tl.constexpr, C: tl.constexpr):
    r = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)[:, None]
    c = (tl.program_id(1) * C + tl.arange(0, C))[None, :]
    values = tl.load(source + r * length + c, mask=(r < count) & (c < length), other=0)
    tl.store(target + r * room + c, values, mask=(r < count) & (c < room))


@triton.jit
def _rounded(values, ON_GPU: tl.constexpr):
    """bfloat16, to nearest even: what hardware does, and the interpreter does not."""
    if ON_GPU:
        found = values.to(tl.bfloat16)
    else:
        bits = values.to(tl.uint32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        found = bits.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    return found


@triton.jit
def _store(y, row, column, acc, scale, M, N, BY_TMA: tl.constexpr, ON_GPU: tl.constexpr):
    """A block of y, scaled; ``row`` and ``column`` are its first."""
    BM: tl.constexpr = acc.shape[0]
    BN: tl.constexpr = acc.shape[1]
    n = column + tl.arange(0, BN)
    factor = tl.load(scale + n, mask=n < N, other=0.0)
    values = _rounded(acc * factor[None, :], ON_GPU)
    if BY_TMA:
        y.store([row, column], values)
    else:
        m = (row + tl.arange(0, BM)).to(tl.int64)
        inside = (m < M)[:, None] & (n < N)[None, :]
        tl.store(y + m[:, None] * N + n[None, :], values, mask=inside)


@triton.jit
def _product(
    x,
    weight,
    scale,
    y,
    M,
    N,
    K,
    PROGRAMS: tl.constexpr,
    BY_TMA: tl.constexpr,
    ON_GPU: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    rows = tl.cdiv(M, BM)
    columns = tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    in_group = GROUP * columns
    for tile in tl.range(tl.program_id(0), rows * columns, PROGRAMS, flatten=True):
        first = tile // in_group * GROUP
        height = min(rows - first, GROUP)
        row = (first + tile % in_group % height) * BM
        column = tile % in_group // height * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(steps):
            a = x.load([row, step * BK])
            b = weight.load([column, step * BK])
            acc = tl.dot(a, b.T, acc)
        halves = tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1))
        left, right = tl.split(halves)
        _store(y, row, column, left, scale, M, N, BY_TMA, ON_GPU)
        _store(y, row, column + BN // 2, right, scale, M, N, BY_TMA, ON_GPU)


@triton.jit
def _product_thin(
    x,
    weight,
    scale,
    y,
    partial,
    arrived,
    M,
    N,
    K,
    SPLITS: tl.constexpr,
    ON_GPU: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    column = tl.program_id(0)
    split = tl.program_id(1)
    steps = tl.cdiv(K, BK)
    each = tl.cdiv(steps, SPLITS)
    acc = tl.zeros((BN, BM), tl.float32)
    for step in range(split * each, min(split * each + each, steps)):
        a = weight.load([column * BN, step * BK])
        b = x.load([0, step * BK])
        acc = tl.dot(a, b.T, acc)

    is_last = True
    if SPLITS > 1:
        at = tl.arange(0, BN)[:, None] * BM + tl.arange(0, BM)[None, :]
        mine = partial + column * SPLITS * BN * BM
        tl.store(mine + split * BN * BM + at, acc)
        tl.debug_barrier()  # all of the program has written before one thread says so
        is_last = tl.atomic_add(arrived + column, 1, sem="acq_rel") == SPLITS - 1
        if is_last:
            acc = tl.zeros((BN, BM), tl.float32)
            for other in range(SPLITS):
                acc += tl.load(mine + other * BN * BM + at, cache_modifier=".cg")
            tl.store(arrived + column, 0)
    if is_last:
        n = column * BN + tl.arange(0, BN)
        m = tl.arange(0, BM)
        factor = tl.load(scale + n, mask=n < N, other=0.0)
        inside = (n < N)[:, None] & (m < M)[None, :]
        values = _rounded(acc * factor[:, None], ON_GPU)
        tl.store(y + m[None, :] * N + n[:, None], values, mask=inside)
