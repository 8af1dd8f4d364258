"""The same on a GPU: the whole softmax to memory, then k passes over each row.

One program serves one row. Pass n finds the largest element that comes after the n-th in the order
(value descending, index ascending); nothing is marked, the last one found is the cursor.
"""

import torch
import triton
import triton.language as tl

TILE = 4096


def topk(logits, k):
    B, T, V = logits.shape
    place = {"device": logits.device}
    softmax = torch.empty((B, T, V), dtype=torch.float32, **place)
    indices = torch.empty((B, T, k), dtype=torch.int64, **place)
    probabilities = torch.empty((B, T, k), dtype=torch.float32, **place)
    tile = min(TILE, triton.next_power_of_2(V))
    strides = logits.stride()
    _softmax_kernel[(B * T,)](logits, softmax, T, V, *strides, TILE=tile, num_warps=8)
    _select_kernel[(B * T,)](
        logits, softmax, indices, probabilities, T, V, k, *strides, TILE=tile, num_warps=8
    )
    return indices, probabilities


@triton.jit
def _load(row, at, stride_v, V):
    return tl.load(row + at.to(tl.int64) * stride_v, mask=at < V, other=float("-inf")).to(
        tl.float32
    )


# Counts are not specialised: a V or a T of 1 would compile another kernel for nothing.
@triton.jit(do_not_specialize=["T", "V"])
def _softmax_kernel(logits, softmax, T, V, stride_b, stride_t, stride_v, TILE: tl.constexpr):
    number = tl.program_id(0).to(tl.int64)
    row = logits + (number // T) * stride_b + (number % T) * stride_t
    lanes = tl.arange(0, TILE)
    peaks = tl.full((TILE,), float("-inf"), tl.float32)
    for start in range(0, V, TILE):
        peaks = tl.maximum(peaks, _load(row, start + lanes, stride_v, V))
    peak = tl.max(peaks, 0)
    sums = tl.zeros((TILE,), tl.float32)
    for start in range(0, V, TILE):
        sums += tl.exp(_load(row, start + lanes, stride_v, V) - peak)
    total = tl.sum(sums, 0)
    for start in range(0, V, TILE):
        at = start + lanes
        weights = tl.exp(_load(row, at, stride_v, V) - peak)
        tl.store(softmax + number * V + at, weights / total, mask=at < V)


@triton.jit(do_not_specialize=["T", "V", "k"])
def _select_kernel(
    logits,
    softmax,
    indices,
    probabilities,
    T,
    V,
    k,
    stride_b,
    stride_t,
    stride_v,
    TILE: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64)
    row = logits + (number // T) * stride_b + (number % T) * stride_t
    lanes = tl.arange(0, TILE)
    last = tl.full((), float("inf"), tl.float32)
    last_at = tl.full((), -1, tl.int32)
    for n in range(k):
        best = tl.full((TILE,), float("-inf"), tl.float32)
        best_at = tl.full((TILE,), 0, tl.int32) + V  # V: none yet; -inf is a value like any other
        for start in range(0, V, TILE):
            at = start + lanes
            x = _load(row, at, stride_v, V)
            after = (x < last) | ((x == last) & (at > last_at))
            better = (at < V) & after & ((x > best) | (best_at == V))
            best = tl.where(better, x, best)
            best_at = tl.where(better, at, best_at)
        last = tl.max(best, 0)
        last_at = tl.min(tl.where(best == last, best_at, V), 0)
        tl.store(indices + number * k + n, last_at.to(tl.int64))
        tl.store(probabilities + number * k + n, tl.load(softmax + number * V + last_at))
