"""Block-selected causal attention (NSA): each query reads 8 blocks of 64 keys and its last 64 keys.

q, k, v are (B, H, S, D) bfloat16. For query t a key s is causal when s <= t. The importance of a
block is the mean of q.k / sqrt(D) over its causal keys; a block with no causal key has none. The 8
blocks of highest importance are kept (all, where there are fewer), of equal ones those of higher
index; the query's own block takes part with its causal keys like any other. Attention is softmax
over the causal keys of the kept blocks united with the keys t-63 .. t, each key once.

The module interface is that of the public deck: ``Model(B, H, S, D)`` with one buffer ``_dummy``,
and ``get_inputs``, ``get_init_inputs`` at module level.

Here everything after the inputs is float64, so the selection is exact. An honest float32 sum can
still decide otherwise where the eighth and the ninth block are as good as equal, and one other
block changes a row by more than any tolerance. ``make_inputs`` therefore draws such queries again:
``MARGIN`` is 2**-12 of the importances, which is about 500 float32 roundings of one score.
"""

import torch
from torch import nn

B, H, S, D = 1, 16, 2048, 64
BLOCK, KEPT, WINDOW = 64, 8, 64  # keys of a block, blocks that are kept, last keys
MARGIN = 2.0**-12  # between the last block kept and the next, relative to the row's importances
SCORES = 1 << 25  # of one chunk of queries: 256 MB


class Model(nn.Module):
    """What a submission replaces."""

    def __init__(self, B, H, S, D):
        super().__init__()
        self.size = B, H, S, D
        self.register_buffer("_dummy", torch.zeros(1, dtype=torch.bfloat16))

    def forward(self, q, k, v):
        """(B, H, S, D) bfloat16."""
        return attention(q, k, v)


def get_inputs():
    """Inputs of the default size."""
    return [torch.randn(B, H, S, D).bfloat16() for _ in range(3)]


def get_init_inputs():
    """Arguments of the constructor."""
    return [B, H, S, D]


def importance(q, k):
    """(B, H, S, blocks) float64: of each block for each query, -inf where no key is causal."""
    B, H, S, D = k.shape
    padded = nn.functional.pad(k.double(), (0, 0, 0, -S % BLOCK))
    sums = padded.view(B, H, -1, BLOCK, D).cumsum(3)  # of the keys of a block up to each
    means_of_past = sums[:, :, :, -1] / BLOCK
    at = torch.arange(S, device=k.device)
    keys_so_far = (at % BLOCK + 1).double()[:, None]
    mean_of_own = sums.view(B, H, -1, D)[:, :, :S] / keys_so_far

    q = q.double()
    found = q @ means_of_past.transpose(2, 3)
    own = at[:, None] // BLOCK
    number = torch.arange(found.shape[3], device=k.device)
    of_own = (q * mean_of_own).sum(3, keepdim=True)
    found = torch.where(number == own, of_own, found) * D**-0.5
    return found.masked_fill(number > own, -torch.inf)


def kept_blocks(values):
    """(B, H, S, blocks) bool: those of highest importance, of equal ones the higher index."""
    order = values.flip(3).sort(dim=3, descending=True, stable=True).indices
    kept = torch.zeros_like(values, dtype=torch.bool)
    kept.scatter_(3, values.shape[3] - 1 - order[..., :KEPT], True)
    return kept & (values > -torch.inf)


def attention(q, k, v):
    """The output, (B, H, S, D) in the dtype of v, in chunks of queries."""
    B, H, S, D = q.shape
    out = torch.empty_like(v)
    kept = kept_blocks(importance(q, k))
    keys, values = k.double(), v.double()
    at = torch.arange(S, device=q.device)
    step = max(SCORES // (B * H * S), 1)
    for start in range(0, S, step):
        chunk = slice(start, min(start + step, S))
        end = chunk.stop  # no key beyond it is causal
        scores = q[:, :, chunk].double() @ keys[:, :, :end].transpose(2, 3) * D**-0.5
        ago = at[chunk, None] - at[:end]
        chosen = kept[:, :, chunk].repeat_interleave(BLOCK, 3)[..., :end]
        seen = (chosen | (ago < WINDOW)) & (ago >= 0)
        weights = scores.masked_fill_(~seen, -torch.inf).softmax(3)
        out[:, :, chunk] = (weights @ values[:, :, :end]).to(v.dtype)
    return out


def too_close(q, k):
    """(B, H, S) bool: queries of which float32 sums may choose another eighth block."""
    values = importance(q, k)
    if values.shape[3] <= KEPT:
        return torch.zeros(values.shape[:3], dtype=torch.bool, device=q.device)
    last, next_one = values.topk(KEPT + 1, dim=3).values[..., KEPT - 1 :].unbind(3)
    is_causal = values > -torch.inf
    squares = values.masked_fill(~is_causal, 0).square().sum(3) / is_causal.sum(3)
    return last - next_one < MARGIN * squares.sqrt()


def make_inputs(shape, seed, device="cpu"):
    """One call on normal q, k and v."""
    rng = torch.Generator(device=device).manual_seed(seed)
    init = [shape["B"], shape["H"], shape["S"], shape["D"]]
    q, k, v = (torch.randn(init, device=device, generator=rng).bfloat16() for _ in range(3))
    while (again := too_close(q, k)).any():
        fresh = torch.randn(int(again.sum()), shape["D"], device=device, generator=rng)
        q[again] = fresh.bfloat16()
    return {"params": {"init": init}, "calls": [{"q": q, "k": k, "v": v}]}


def make_weights(shape, seed, device="cpu"):
    """The state dict; nothing depends on it."""
    return {"_dummy": torch.zeros(1, dtype=torch.bfloat16, device=device)}


def reference(params, calls):
    """The output of each call."""
    return [{"y": attention(call["q"], call["k"], call["v"])} for call in calls]
