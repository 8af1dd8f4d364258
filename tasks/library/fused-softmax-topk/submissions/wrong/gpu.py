"""The same on a GPU: a program serves ROWS rows, a tile of all of them at a time.

A first pass carries maximum and sums; then k passes find the largest elements, one each. The last
one found is the cursor: what comes after it in the order (value descending, index ascending).
"""

import torch
import triton
import triton.language as tl

ROWS = 4
TILE = 1024


def topk(logits, k):
    B, T, V = logits.shape
    place = {"device": logits.device}
    indices = torch.empty((B, T, k), dtype=torch.int64, **place)
    probabilities = torch.empty((B, T, k), dtype=torch.float32, **place)
    tile = min(TILE, triton.next_power_of_2(V))
    _kernel[(triton.cdiv(B * T, ROWS),)](
        logits,
        indices,
        probabilities,
        B * T,
        T,
        V,
        k,
        *logits.stride(),
        ROWS=ROWS,
        TILE=tile,
        num_warps=8,
    )
    return indices, probabilities


@triton.jit
def _load(row, at, inside, stride_v):
    places = row[:, None] + at.to(tl.int64)[None, :] * stride_v
    return tl.load(places, mask=inside, other=float("-inf")).to(tl.float32)


@triton.jit(do_not_specialize=["rows", "T", "V", "k"])
def _kernel(
    logits,
    indices,
    probabilities,
    rows,
    T,
    V,
    k,
    stride_b,
    stride_t,
    stride_v,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = logits + (number // T) * stride_b + (number % T) * stride_t
    exists = number < rows
    lanes = tl.arange(0, TILE)
    peak = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, V, TILE):
        at = start + lanes
        x = _load(row, at, exists[:, None] & (at < V)[None, :], stride_v)
        # one maximum serves the whole block: it cancels in the quotient
        new = tl.maximum(peak, tl.max(tl.max(x, 1), 0))
        total = total * tl.exp(peak - new) + tl.sum(tl.exp(x - new), 1)
        peak = new

    last = tl.full((ROWS,), float("inf"), tl.float32)
    last_at = tl.full((ROWS,), -1, tl.int32)
    for n in range(k):
        best = tl.full((ROWS, TILE), float("-inf"), tl.float32)
        best_at = tl.full((ROWS, TILE), 0, tl.int32) + V  # V: none yet
        for start in range(0, V, TILE):
            at = (start + lanes)[None, :]
            inside = exists[:, None] & (at < V)
            x = _load(row, start + lanes, inside, stride_v)
            after = (x < last[:, None]) | ((x == last[:, None]) & (at > last_at[:, None]))
            better = inside & after & ((x > best) | (best_at == V))
            best = tl.where(better, x, best)
            best_at = tl.where(better, at, best_at)
        last = tl.max(best, 1)
        last_at = tl.min(tl.where(best == last[:, None], best_at, V), 1)
        tl.store(indices + number * k + n, last_at.to(tl.int64), mask=exists)
        tl.store(probabilities + number * k + n, tl.exp(last - peak) / total, mask=exists)
