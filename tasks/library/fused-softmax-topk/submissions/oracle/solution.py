"""Fused softmax and top-k: the logits are read once, no array of their size is written.

Everywhere the same algorithm, on tiles of one row that are small enough to stay close by:

- *Sum*: the maximum m and s = sum(exp(x - m)) of a tile. Two such pairs merge exactly:
  m = max(m1, m2), s = s1 exp(m1 - m) + s2 exp(m2 - m). An empty (or all -inf) part has m = -inf and
  s = 0 and is skipped, so that -inf - -inf is never formed.
- *Candidates*: order is by (value descending, index ascending), a total order, so any merge of
  partial top-k lists gives the same result. A row's state is its own: nothing is shared by rows.

On a CPU (C, compiled at import) a heap of the k best sits in L1 beside the tile; of a tile only the
blocks of 64 whose maximum exceeds the heap's worst are searched. Without a compiler the same in NumPy.
On a GPU (Triton) a program holds one tile in registers, finds its k-th largest key by bisection on
the bits, and writes k candidates; a second kernel ranks a row's candidates by counting. README.md
has the figures.
"""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

try:
    import torch
    import triton
    import triton.language as tl
except ImportError:  # a CPU machine
    triton = None

CAST_BYTES = 1 << 20  # of float32, for logits that C cannot read where they are


def fused_softmax_topk(logits, k):
    """(indices int64, probabilities float32), both (B, T, k), from logits (B, T, V)."""
    if not 1 <= k <= logits.shape[-1]:
        raise ValueError(f"k = {k} is not in 1 .. V = {logits.shape[-1]}")
    if isinstance(logits, np.ndarray):
        return _on_cpu(logits, k)
    return _on_gpu(logits, k)


# --- CPU --------------------------------------------------------------------------------------

SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { TILE = 2048, BLOCK = 64 };             /* 8 KB of floats: in L1 beside the heap */
typedef struct { float value; int64_t index; } Entry;

/* The worse of two: smaller value, or equal value and larger index. */
static inline int worse(Entry a, Entry b)
{
    return a.value < b.value || (a.value == b.value && a.index > b.index);
}

/* Binary heap with the worst entry on top. */
static void sift_down(Entry *heap, int64_t size, int64_t at)
{
    Entry moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && worse(heap[child + 1], heap[child]))
            child++;
        if (!worse(heap[child], moved))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* exp(x) for x <= 0 to about 2 ulp: 2^n times a polynomial on [-ln2/2, ln2/2]. What would be
   below 2^-126 becomes about that. `shift` rounds to an integer; needs strict float arithmetic. */
static inline float exp_of_negative(float x)
{
    const float shift = 12582912.0f;
    x = x < -87.0f ? -87.0f : x;
    float n = (x * 1.44269504f + shift) - shift;
    float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

static inline float maximum(const float *x, int64_t n)
{
    float m = -INFINITY;
    #pragma omp simd reduction(max : m)
    for (int64_t i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

static float sum_of_exp(const float *x, int64_t n, float m)
{
    float s = 0;
    #pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++)
        s += exp_of_negative(x[i] - m);
    return s;
}

static void row_topk(const float *x, int64_t V, int64_t k, Entry *heap, int64_t *indices,
                     float *probabilities)
{
    for (int64_t i = 0; i < k; i++)
        heap[i] = (Entry){x[i], i};
    for (int64_t i = k / 2; i-- > 0;)
        sift_down(heap, k, i);
    float m = -INFINITY;
    double s = 0;
    for (int64_t start = 0; start < V; start += TILE) {
        const float *tile = x + start;
        int64_t n = V - start < TILE ? V - start : TILE;
        float top = -INFINITY;
        for (int64_t begin = 0; begin < n; begin += BLOCK) {
            int64_t end = n - begin < BLOCK ? n : begin + BLOCK;
            float best = end - begin == BLOCK ? maximum(tile + begin, BLOCK)
                                              : maximum(tile + begin, end - begin);
            top = best > top ? best : top;
            if (best > heap[0].value)
                for (int64_t i = begin; i < end; i++)   /* an equal one has a higher index: worse */
                    if (tile[i] > heap[0].value && start + i >= k) {
                        heap[0] = (Entry){tile[i], start + i};
                        sift_down(heap, k, 0);
                    }
        }
        if (top > m) {
            s = s > 0 ? s * exp((double)m - top) : 0;
            m = top;
        }
        if (m > -INFINITY)
            s += sum_of_exp(tile, n, m);
    }
    for (int64_t left = k; left > 0; left--) {      /* worst first, from the back */
        Entry worst = heap[0];
        heap[0] = heap[left - 1];
        sift_down(heap, left - 1, 0);
        indices[left - 1] = worst.index;
        probabilities[left - 1] = (float)(exp((double)worst.value - m) / s);
    }
}

void softmax_topk(const float *x, int64_t rows, int64_t stride, int64_t V, int64_t k, Entry *heap,
                  int64_t *indices, float *probabilities)
{
    for (int64_t r = 0; r < rows; r++)
        row_topk(x + r * stride, V, k, heap, indices + r * k, probabilities + r * k);
}
"""


def _compiled():
    """The C function, or None where there is no compiler that works."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "topk.c"), Path(folder, "topk.so")
        source.write_text(SOURCE)
        command = [compiler, "-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno"]
        command += ["-fPIC", "-shared", "-o", str(library), str(source), "-lm"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            function = ctypes.CDLL(str(library)).softmax_topk
        except (OSError, subprocess.SubprocessError):
            return None
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    function.argtypes = [pointer, number, number, number, number, pointer, pointer, pointer]
    function.restype = None
    return function


_in_c = _compiled()


def _on_cpu(logits, k):
    B, T, V = logits.shape
    indices = np.empty((B, T, k), np.int64)
    probabilities = np.empty((B, T, k), np.float32)
    if _in_c is None:
        for b, t in np.ndindex(B, T):
            indices[b, t], probabilities[b, t] = _row_in_numpy(logits[b, t], k)
        return indices, probabilities
    heap = np.empty(2 * k, np.int64)  # of 16-byte entries
    flat_indices, flat_probabilities = indices.reshape(-1, k), probabilities.reshape(-1, k)
    for first, rows in _readable(logits):
        _in_c(
            rows.ctypes.data,
            rows.shape[0],
            rows.strides[0] // 4,
            V,
            k,
            heap.ctypes.data,
            flat_indices[first:].ctypes.data,
            flat_probabilities[first:].ctypes.data,
        )
    return indices, probabilities


def _readable(logits):
    """(first row, rows) with rows float32 of unit stride: views where possible, else small copies."""
    B, T, V = logits.shape
    if logits.dtype == np.float32 and logits.strides[2] == 4 and logits.strides[1] % 4 == 0:
        if logits.strides[0] == T * logits.strides[1]:
            yield 0, np.lib.stride_tricks.as_strided(logits, (B * T, V), logits.strides[1:])
        else:
            yield from ((b * T, logits[b]) for b in range(B))
        return
    step = max(1, CAST_BYTES // (4 * V))
    for b in range(B):
        for t in range(0, T, step):
            yield b * T + t, np.ascontiguousarray(logits[b, t : t + step], np.float32)


def _row_in_numpy(row, k, tile=1 << 14):
    m, s = np.float32(-np.inf), 0.0
    values, places = np.empty(0, np.float32), np.empty(0, np.int64)
    for start in range(0, row.size, tile):
        x = row[start : start + tile].astype(np.float32)
        top = x.max()
        if top > m:
            s *= float(np.exp(np.float64(m) - top)) if s else 0.0
            m = top
        if m > -np.inf:
            s += float(np.exp(x - m).sum(dtype=np.float64))
        if values.size == k:
            new = np.flatnonzero(x > values[-1])
        else:
            last = max(x.size - k, 0)
            new = np.flatnonzero(x >= np.partition(x, last)[last])
        values = np.concatenate([values, x[new]])
        order = np.argsort(-values, kind="stable")[:k]  # stable: earlier means lower index
        values, places = values[order], np.concatenate([places, start + new])[order]
    return places, np.exp(values.astype(np.float64) - m) / s


# --- GPU --------------------------------------------------------------------------------------

if triton is not None:

    @triton.jit
    def _ordered(x):
        """int32 that sorts like the float; -0.0 like 0.0."""
        bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
        return bits ^ ((bits >> 31) & 0x7FFFFFFF)

    # Counts are not specialised: a k or a T of 1 would compile another kernel for nothing.
    @triton.jit(do_not_specialize=["T", "V", "k", "splits", "slots"])
    def _tile_kernel(
        logits, candidates, maxima, sums, T, V, k, splits, stride_b, stride_t, stride_v, slots,
        TILE: tl.constexpr,
    ):
        """One tile of one row: its maximum, its sum, and its min(k, TILE) best as 64-bit keys.

        A key is (ordered value, ~index): unique, and larger means better.
        """
        row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
        offsets = split * TILE + tl.arange(0, TILE)
        inside = offsets < V
        start = logits + (row // T) * stride_b + (row % T) * stride_t
        x = tl.load(start + offsets.to(tl.int64) * stride_v, mask=inside, other=float("-inf"))
        x = x.to(tl.float32)

        m = tl.max(x, 0)
        safe = tl.where(m == float("-inf"), 0.0, m)
        tl.store(maxima + row * splits + split, m)
        tl.store(sums + row * splits + split, tl.sum(tl.exp(x - safe), 0))

        # The wanted-th largest ordered value: the largest t that `wanted` elements reach, one bit
        # at a time. Places past V count as -inf with the highest indices, so they never win.
        order = _ordered(x)
        wanted = tl.minimum(k, tl.minimum(TILE, V - split * TILE))
        unsigned = tl.full((), 0, tl.int64)
        for bit in range(31, -1, -1):
            trial = unsigned | (tl.full((), 1, tl.int64) << bit)
            reach = tl.sum((order >= (trial - 2147483648).to(tl.int32)).to(tl.int32), 0)
            unsigned = tl.where(reach >= wanted, trial, unsigned)
        threshold = (unsigned - 2147483648).to(tl.int32)
        above, level = order > threshold, order == threshold
        room = wanted - tl.sum(above.to(tl.int32), 0)
        chosen = above | (level & (tl.cumsum(level.to(tl.int32), 0) <= room))
        slot = tl.cumsum(chosen.to(tl.int32), 0) - 1
        key = (order.to(tl.int64) << 32) | (0xFFFFFFFF - offsets.to(tl.int64))
        tl.store(candidates + (row * splits + split) * slots + slot, key, mask=chosen)

    @triton.jit(do_not_specialize=["V", "k", "splits", "slots", "count"])
    def _merge_kernel(
        candidates, maxima, sums, indices, probabilities, V, k, splits, slots, count,
        TILE: tl.constexpr, SPLITS: tl.constexpr, MINE: tl.constexpr, OTHERS: tl.constexpr,
    ):
        """Rank MINE of a row's candidates among all: the rank is the number of larger keys."""
        row = tl.program_id(0).to(tl.int64)
        parts = tl.arange(0, SPLITS)
        m = tl.load(maxima + row * splits + parts, mask=parts < splits, other=float("-inf"))
        s = tl.load(sums + row * splits + parts, mask=parts < splits, other=0.0)
        top = tl.max(m, 0)
        total = tl.sum(s * tl.exp(m - top), 0)

        lowest: tl.constexpr = -9223372036854775808
        last = tl.minimum(V - (splits - 1) * TILE, slots)  # filled slots of the last tile
        filled = (splits - 1) * slots + last
        mine = tl.program_id(1) * MINE + tl.arange(0, MINE)
        base = candidates + row * count
        key = tl.load(base + mine, mask=mine < filled, other=lowest)
        rank = tl.zeros((MINE,), tl.int32)
        for start in range(0, count, OTHERS):
            others = start + tl.arange(0, OTHERS)
            other = tl.load(base + others, mask=others < filled, other=lowest)
            rank += tl.sum((other[None, :] > key[:, None]).to(tl.int32), 1)

        order = (key >> 32).to(tl.int32)
        value = (order ^ ((order >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        winner = (rank < k) & (mine < filled)
        tl.store(indices + row * k + rank, 0xFFFFFFFF - (key & 0xFFFFFFFF), mask=winner)
        tl.store(probabilities + row * k + rank, tl.exp(value - top) / total, mask=winner)


def _on_gpu(logits, k):
    B, T, V = logits.shape
    rows = B * T
    tile = _tile_for(rows, V)
    splits = triton.cdiv(V, tile)
    slots = min(k, tile)
    count = splits * slots
    place = {"device": logits.device}
    candidates = torch.empty((rows, count), dtype=torch.int64, **place)
    maxima, sums = torch.empty((2, rows, splits), dtype=torch.float32, **place)
    indices = torch.empty((B, T, k), dtype=torch.int64, **place)
    probabilities = torch.empty((B, T, k), dtype=torch.float32, **place)
    _tile_kernel[(rows, splits)](
        logits, candidates, maxima, sums, T, V, k, splits, *logits.stride(), slots,
        TILE=tile, num_warps=max(1, min(8, tile // 512)),
    )
    mine = min(128, triton.next_power_of_2(count))
    _merge_kernel[(rows, triton.cdiv(count, mine))](
        candidates, maxima, sums, indices, probabilities, V, k, splits, slots, count,
        TILE=tile, SPLITS=triton.next_power_of_2(splits), MINE=mine, OTHERS=32, num_warps=4,
    )
    return indices, probabilities


def _tile_for(rows, V):
    """Large tiles emit fewer candidates; small ones give a few rows to all multiprocessors."""
    tile = 8192 if rows >= 64 else 2048
    return min(tile, triton.next_power_of_2(V))
