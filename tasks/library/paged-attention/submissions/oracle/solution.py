"""Split-KV flash decoding over pages in one launch; the last program of a KV head combines.

A program serves all query heads of one KV head (keys and values are read once), for one part of one
sequence: tiles of tokens gathered through the block table, an online softmax in base 2, scores and
results by tensor cores on 16 rows. A part's maximum, sum and unnormalised result go to scratch in
float32; the program that arrives last at its KV head (a counter, which it sets back) adds them up.
Where one part serves a whole sequence it writes the result itself. Lengths are split evenly, each
sequence's own.

Expected on an H200 (bandwidth bounds all of it; ideal in brackets, launch latency on top):
b8 l1024 9 us (7), b32 l2048 66 us (56), b4 h64 l4096 18 us (14), b16 l1535 26 us (21), b8 d64 l2000
5.5 us (3.5: too short to fill the memory's pipes). There are as many programs as fit at once (two
an SM, 103 KB of shared memory each): 256 of them for each of the scored sizes. Later calls skip Triton's
argument binding (``_Plan``), which would cost as much as the smallest size.
To tune: BLOCK, STAGES, WARPS, PROGRAMS.
"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 64  # tokens of a tile
STAGES = 7  # three tiles in flight: the table is read ahead of them, in stages of its own
WARPS = 4
PROGRAMS = 264  # that run at once: two on each of 132 SMs
LOG2_E = 1.4426950408889634


@triton.jit
def _product(a, b, WIDE: tl.constexpr):
    """a @ b. Triton's interpreter takes bfloat16 for integers, and truncates where a GPU rounds."""
    if WIDE:
        return tl.dot(a.to(tl.float32), b.to(tl.float32))
    else:
        return tl.dot(a.to(b.dtype), b)


@triton.jit
def _attend(
    query,
    kv_cache,
    block_table,
    seq_lens,
    out,
    peaks,
    sums,
    parts,
    arrived,
    pages,
    scale,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    SPLITS: tl.constexpr,
    SPLITS_UP: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    WIDE: tl.constexpr,
):
    """One part of one sequence for one KV head. ``scale`` holds the log2 of e."""
    kv_head, split, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(seq_lens + b)
    tiles = tl.cdiv(length, BLOCK)
    each = tl.cdiv(tiles, SPLITS)
    first = split * each * BLOCK
    end = tl.minimum(first + each * BLOCK, length)

    row = tl.arange(0, ROWS)
    dim = tl.arange(0, DIM)
    lane = tl.arange(0, BLOCK)
    pair = b * KV_HEADS + kv_head
    heads = (pair * GROUP + row)[:, None] * DIM + dim[None, :]
    q = tl.load(query + heads, mask=(row < GROUP)[:, None], other=0.0)
    table = block_table + b * pages
    head = kv_cache + kv_head * (2 * DIM) + dim[None, :]

    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    result = tl.zeros((ROWS, DIM), tl.float32)
    for start in tl.range(first, end, BLOCK, num_stages=STAGES):
        token = start + lane
        held = token < end
        page = tl.load(table + token // PAGE, mask=held, other=0).to(tl.int64)
        place = (page * PAGE + token % PAGE) * (KV_HEADS * 2 * DIM)
        at = head + place[:, None]
        keys = tl.load(at, mask=held[:, None], other=0.0)
        values = tl.load(at + DIM, mask=held[:, None], other=0.0)
        scores = _product(q, tl.trans(keys), WIDE) * scale
        scores = tl.where(held[None, :], scores, float("-inf"))
        new = tl.maximum(peak, tl.max(scores, 1))
        shrink = tl.exp2(peak - new)
        weights = tl.exp2(scores - new[:, None])
        total = total * shrink + tl.sum(weights, 1)
        result = result * shrink[:, None] + _product(weights, values, WIDE)
        peak = new

    if SPLITS == 1:
        y = (result / total[:, None]).to(out.dtype.element_ty)
        tl.store(out + heads, y, mask=(row < GROUP)[:, None])
    else:
        rows = (pair * SPLITS + split) * GROUP + row
        tl.store(peaks + rows, peak, mask=row < GROUP)
        tl.store(sums + rows, total, mask=row < GROUP)
        tl.store(parts + rows[:, None] * DIM + dim[None, :], result, mask=(row < GROUP)[:, None])
        tl.debug_barrier()  # all warps have stored before one of them counts the program in
        before = tl.atomic_add(arrived + pair, 1, sem="acq_rel", scope="gpu")
        if before == SPLITS - 1:
            tl.store(arrived + pair, 0)  # for the next launch
            part = tl.arange(0, SPLITS_UP)
            for g in range(GROUP):
                at_part = (pair * SPLITS + part) * GROUP + g
                real = part < SPLITS
                of = tl.load(peaks + at_part, mask=real, other=float("-inf"), cache_modifier=".cg")
                sums_of = tl.load(sums + at_part, mask=real, other=0.0, cache_modifier=".cg")
                share = tl.exp2(of - tl.max(of, 0))
                share = share / tl.sum(share * sums_of, 0)
                cells = parts + at_part[:, None] * DIM + dim[None, :]
                partial = tl.load(cells, mask=real[:, None], other=0.0, cache_modifier=".cg")
                y = tl.sum(partial * share[:, None], 0).to(out.dtype.element_ty)
                tl.store(out + (pair * GROUP + g) * DIM + dim, y)


class _Plan:
    """How one size is launched on one stream, and the scratch that its programs share."""

    def __init__(self, init, pages, device):
        batch, heads, kv_heads, head_dim, seq, page = init
        pairs, group = batch * kv_heads, heads // kv_heads
        splits = max(min(PROGRAMS // pairs, -(-seq // BLOCK)), 1)
        cells = pairs * splits * group
        place = {"device": device}
        self.scratch = (
            torch.empty(cells, dtype=torch.float32, **place),
            torch.empty(cells, dtype=torch.float32, **place),
            torch.empty(cells * head_dim, dtype=torch.float32, **place),
            torch.zeros(pairs, dtype=torch.int32, **place),
        )
        rows = max(triton.next_power_of_2(group), 16)
        splits_up = triton.next_power_of_2(splits)
        scale = LOG2_E * head_dim**-0.5
        self.sizes = (pages, scale, kv_heads, group, rows, head_dim, page, splits, splits_up)
        self.sizes += (BLOCK, STAGES, device.type == "cpu")
        self.grid = (kv_heads, splits, batch)
        self.compiled = None  # after the first launch; none in Triton's interpreter

    def launch(self, *tensors):
        """Run the kernel, the first time through Triton's front end."""
        given = (*tensors, *self.scratch, *self.sizes)
        if self.compiled is not None:
            self.compiled(*given)
            return
        made = _attend[self.grid](*given, num_warps=WARPS)
        if made is not None and hasattr(made, "__getitem__"):
            self.compiled = made[self.grid]


class Model(nn.Module):
    """``forward(query, kv_cache, block_table, seq_lens)``: (batch, heads, head_dim)."""

    def __init__(self, batch, heads, kv_heads, head_dim, seq, page=16):
        super().__init__()
        self.init = batch, heads, kv_heads, head_dim, seq, page
        self._plans = {}

    def forward(self, query, kv_cache, block_table, seq_lens):
        out = torch.empty_like(query)
        device = query.get_device()
        stream = torch.cuda.current_stream(device).cuda_stream if device >= 0 else 0
        tensors = (query, kv_cache, block_table, seq_lens, out)
        pages = block_table.shape[1]
        aligned = sum(tensor.data_ptr() % 16 for tensor in tensors) == 0  # is compiled in
        key = device, stream, pages, aligned
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = _Plan(self.init, pages, query.device)
        if not aligned:
            plan.compiled = None
        plan.launch(*tensors)
        return out
