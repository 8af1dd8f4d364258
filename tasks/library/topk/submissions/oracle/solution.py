"""The k largest of each row in one launch: every chunk of a row keeps k, the last program merges.

A float is compared as an integer of the same order. A program holds its chunk in registers and
searches the k-th largest of it by bisection, three thresholds at a time, all counted in one packed
sum; the search starts between the least of the lanes' maxima (as many elements as there are lanes
are no smaller) and the maximum. What is at or above the threshold goes to its slots by a prefix sum,
ties in the order of their places, so that among equals the lower index wins.
The program of a row that arrives last (a counter, which it sets back) selects again from all slots
where they are many, and ranks what is left by counting what comes before each.

Sizes beyond those (k in the thousands, rows of millions) take one pass over the row for each of k.

Time on an H200 (expected): the kernel 3 to 4 us (b64_n8192_k8, b32_n16384_k32, b16_n12000_k16), 2 us
(b128_n4096_k1), 7 us (b1_n131072_k64: 64 programs, then 4096 candidates in one of them). Nothing
here is bound by bandwidth: 2 MB are read in half a microsecond. Latency bounds it: one cold read,
about eight rounds of a sum over all warps of a program, two visits to L2 for the counter; and the
launch from Python, so later calls skip Triton's argument binding (``_Plan``).
To tune: TILES, PROGRAMS, RANKED, MERGED and WARP_LOAD.
"""

import torch
import triton
import triton.language as tl
from torch import nn

TILES = (1024, 2048, 4096, 8192)  # elements of a chunk, tried in this order
PROGRAMS = 200  # at most, about those that run at once: H200 has 132 SMs
RANKED = 128  # candidates of a row that are ranked at once, without another selection
MERGED = 4096  # and at most, with one
WARP_LOAD = 512  # elements of a chunk for each warp: 16 a lane

LOWEST = tl.constexpr(-(2**31))
NOWHERE = tl.constexpr(2**31 - 1)
STEP = tl.constexpr(32)  # candidates that are compared with all others at a time


@triton.jit
def _ordered(x):
    """int32 in the order of float32; its own inverse on bits."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _as_float(key):
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _middle(low, high):
    """Halfway, rounded down, without overflow."""
    return (low >> 1) + (high >> 1) + (low & high & 1)


@triton.jit
def _keep(keys, at, slots, slots_at, K: tl.constexpr, TILE: tl.constexpr, LANES: tl.constexpr):
    """Store the K largest keys and where they came from, in the order of their places."""
    if LANES >= K:
        best = tl.max(tl.reshape(keys, [TILE // (4 * LANES), LANES, 4]), 2)
        low = tl.min(tl.max(best, 0), 0)
    else:
        low = tl.min(keys, 0)
    high = tl.max(keys, 0) + 1
    found = tl.sum((keys >= low).to(tl.int32), 0)
    # at least K are >= low (`found`), fewer than K are >= high
    while (found > K) & (_middle(low, high) > low):
        second = _middle(low, high)
        first = _middle(low, second)
        third = _middle(second, high)
        packed = (keys >= first).to(tl.int64) + ((keys >= second).to(tl.int64) << 20)
        counts = tl.sum(packed + ((keys >= third).to(tl.int64) << 40), 0)
        of_first = (counts & 0xFFFFF).to(tl.int32)
        of_second = ((counts >> 20) & 0xFFFFF).to(tl.int32)
        of_third = (counts >> 40).to(tl.int32)
        lower = tl.where(of_second >= K, second, tl.where(of_first >= K, first, low))
        upper = tl.where(of_second >= K, third, tl.where(of_first >= K, second, first))
        fewer = tl.where(of_second >= K, of_second, tl.where(of_first >= K, of_first, found))
        high = tl.where(of_third >= K, high, upper)
        low = tl.where(of_third >= K, third, lower)
        found = tl.where(of_third >= K, of_third, fewer)
    sure_from = tl.where(found == K, low, high)
    sure = keys >= sure_from
    tied = (keys >= low) & (keys < sure_from)
    order = tl.cumsum(sure.to(tl.int32) + (tied.to(tl.int32) << 16), 0)
    all_sure = tl.sum(sure.to(tl.int32), 0)
    slot = tl.where(sure, (order & 0xFFFF) - 1, all_sure + (order >> 16) - 1)
    mask = (sure | tied) & (slot < K)
    tl.store(slots + slot, keys, mask=mask)
    tl.store(slots_at + slot, at, mask=mask)


@triton.jit
def _rank(slots, slots_at, values, indices, K: tl.constexpr, M: tl.constexpr, P: tl.constexpr):
    """Store the K largest of M candidates at their ranks. P is a power of two, at least M."""
    one = tl.arange(0, P)
    key = tl.load(slots + one, mask=one < M, other=LOWEST, cache_modifier=".cg")
    at = tl.load(slots_at + one, mask=one < M, other=NOWHERE, cache_modifier=".cg")
    rank = tl.zeros((P,), tl.int32)
    for start in range(0, P, STEP):
        other = start + tl.arange(0, STEP)
        key2 = tl.load(slots + other, mask=other < M, other=LOWEST, cache_modifier=".cg")
        at2 = tl.load(slots_at + other, mask=other < M, other=NOWHERE, cache_modifier=".cg")
        equal = (key2[None, :] == key[:, None]) & (at2[None, :] < at[:, None])
        before = (key2[None, :] > key[:, None]) | equal
        rank += tl.sum(before.to(tl.int32), 1)
    mask = (one < M) & (rank < K)
    tl.store(values + rank, _as_float(key), mask=mask)
    tl.store(indices + rank, at.to(tl.int64), mask=mask)


@triton.jit
def _largest(x, values, indices, n, TILE: tl.constexpr):
    """k = 1 of a row that one program holds."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, TILE)
    key = _ordered(tl.load(x + row * n + at, mask=at < n, other=0.0))
    key = tl.where(at < n, key, LOWEST)
    best = tl.max(key, 0)
    tl.store(values + row, _as_float(best))
    tl.store(indices + row, tl.min(tl.where(key == best, at, NOWHERE), 0).to(tl.int64))


@triton.jit
def _topk(
    x,
    values,
    indices,
    slots,
    slots_at,
    arrived,
    n,
    K: tl.constexpr,
    K_UP: tl.constexpr,
    TILE: tl.constexpr,
    CHUNKS: tl.constexpr,
    ALL_UP: tl.constexpr,
    DIRECT: tl.constexpr,
    LANES: tl.constexpr,
):
    """One program a chunk. A row has CHUNKS * K slots, and K more for a second selection."""
    chunk, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    at = chunk * TILE + tl.arange(0, TILE)
    key = _ordered(tl.load(x + row * n + at, mask=at < n, other=0.0))
    key = tl.where(at < n, key, LOWEST)
    slots += row * ((CHUNKS + 1) * K)
    slots_at += row * ((CHUNKS + 1) * K)
    values += row * K
    indices += row * K
    _keep(key, at, slots + chunk * K, slots_at + chunk * K, K, TILE, LANES)
    tl.debug_barrier()  # all warps have stored before one of them counts the program in
    before = 0
    if CHUNKS > 1:
        before = tl.atomic_add(arrived + row, 1, sem="acq_rel", scope="gpu")
    if before == CHUNKS - 1:
        if CHUNKS > 1:
            tl.store(arrived + row, 0)  # for the next launch
        if DIRECT:
            _rank(slots, slots_at, values, indices, K, CHUNKS * K, ALL_UP)
        else:
            one = tl.arange(0, ALL_UP)
            held = one < CHUNKS * K
            found = tl.load(slots + one, mask=held, other=LOWEST, cache_modifier=".cg")
            found_at = tl.load(slots_at + one, mask=held, other=NOWHERE, cache_modifier=".cg")
            last = CHUNKS * K
            _keep(found, found_at, slots + last, slots_at + last, K, ALL_UP, LANES)
            tl.debug_barrier()
            _rank(slots + last, slots_at + last, values, indices, K, K, K_UP)


@triton.jit(do_not_specialize=["n", "k"])
def _one_by_one(x, values, indices, n, k, TILE: tl.constexpr):
    """Any size: k passes over the row, each for what comes after the last one found."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    last = tl.full((), NOWHERE, tl.int32)
    last_at = tl.full((), -1, tl.int32)
    for place in range(k):
        best = tl.full((TILE,), LOWEST, tl.int32)
        best_at = tl.full((TILE,), NOWHERE, tl.int32)
        for start in range(0, n, TILE):
            at = start + lanes
            key = _ordered(tl.load(x + row * n + at, mask=at < n, other=0.0))
            after = (key < last) | ((key == last) & (at > last_at))
            better = (at < n) & after & (key > best)
            best = tl.where(better, key, best)
            best_at = tl.where(better, at, best_at)
        last = tl.max(best, 0)
        last_at = tl.min(tl.where(best == last, best_at, NOWHERE), 0)
        tl.store(values + row * k + place, _as_float(last))
        tl.store(indices + row * k + place, last_at.to(tl.int64))


def _chunking(batch, n, k):
    """Elements of a chunk and chunks of a row, or None where no chunking fits."""
    for most in (RANKED, MERGED):
        for tile in TILES:
            chunks = -(-n // tile)
            full = batch * chunks > PROGRAMS and tile < min(n, TILES[-2])
            if k <= tile and chunks * k <= most and not full:
                return tile, chunks
    return None


class _Plan:
    """How one size is launched on one stream, and the scratch that its programs share."""

    def __init__(self, batch, n, k, device):
        self.compiled = None  # after the first launch; none in Triton's interpreter
        chunking = _chunking(batch, n, k)
        tile, chunks = chunking or (TILES[0], 1)
        warps = max(tile // WARP_LOAD, 2)
        if chunking is None:
            self.kernel, self.grid, self.scratch = _one_by_one, (batch, 1, 1), ()
            self.sizes, self.warps = (n, k, tile), 4
        elif k == 1 and chunks == 1:
            self.kernel, self.grid, self.scratch = _largest, (batch, 1, 1), ()
            self.sizes, self.warps = (n, tile), warps
        else:
            places = batch * (chunks + 1) * k
            self.scratch = tuple(
                torch.zeros(size, dtype=torch.int32, device=device)
                for size in (places, places, batch)
            )
            self.kernel, self.grid = _topk, (chunks, batch, 1)
            self.warps = warps
            lanes = 32 * warps
            all_up = max(triton.next_power_of_2(chunks * k), STEP.value)
            direct = chunks * k <= RANKED
            if not direct:
                all_up = max(all_up, 4 * lanes)
            k_up = max(triton.next_power_of_2(k), STEP.value)
            self.sizes = (n, k, k_up, tile, chunks, all_up, direct, lanes)

    def launch(self, *tensors):
        """Run the kernel, the first time through Triton's front end."""
        given = (*tensors, *self.scratch, *self.sizes)
        if self.compiled is not None:
            self.compiled(*given)
            return
        made = self.kernel[self.grid](*given, num_warps=self.warps)
        if made is not None and hasattr(made, "__getitem__"):
            self.compiled = made[self.grid]


class Model(nn.Module):
    """``forward(x)``: values and indices of the k largest of each row, descending."""

    def __init__(self, batch, n, k):
        super().__init__()
        self.batch, self.n, self.k = batch, n, k
        self.register_buffer("_dummy", torch.zeros(1))
        self._plans = {}

    def forward(self, x):
        x = x if x.is_contiguous() else x.contiguous()
        values = x.new_empty((self.batch, self.k))
        indices = x.new_empty((self.batch, self.k), dtype=torch.int64)
        device = x.get_device()
        stream = torch.cuda.current_stream(device).cuda_stream if device >= 0 else 0
        key = device, stream, x.data_ptr() % 16 == 0  # alignment is compiled in
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = _Plan(self.batch, self.n, self.k, x.device)
        plan.launch(x, values, indices)
        return values, indices
