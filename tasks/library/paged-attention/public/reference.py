"""Attention of one new token a sequence over keys and values that lie in pages.

query (batch, heads, head_dim) bfloat16; kv_cache (blocks, page, kv_heads, 2 * head_dim) bfloat16,
each token's key and then its value; block_table (batch, pages) int32, the pages of each sequence in
order; seq_lens (batch,) int32. Result (batch, heads, head_dim) bfloat16. Query heads are grouped:
head h reads KV head h // (heads / kv_heads). Scores are scaled by head_dim**-0.5.

The module interface is that of the public deck: ``Model(batch, heads, kv_heads, head_dim, seq,
page)`` without persistent state, and ``get_inputs``, ``get_init_inputs`` at module level.
"""

import torch
from torch import nn

batch, heads, kv_heads, head_dim, seq, page = 8, 32, 8, 128, 1024, 16
SPARE_PAGES = 8
SCALE = 0.1
AT_ONCE = 1 << 23  # elements of the cache that are worked on at a time


class Model(nn.Module):
    """What a submission replaces."""

    def __init__(self, batch, heads, kv_heads, head_dim, seq, page=16):
        super().__init__()
        self.init = batch, heads, kv_heads, head_dim, seq, page
        self.register_buffer("_dummy", torch.zeros(1), persistent=False)

    def forward(self, query, kv_cache, block_table, seq_lens):
        """The attention of each sequence's new token, (batch, heads, head_dim)."""
        return _attended(query, kv_cache, block_table, seq_lens).to(query.dtype)


def get_inputs():
    """Inputs of the default size."""
    sizes = get_init_inputs()
    names = ("batch", "heads", "kv_heads", "head_dim", "seq", "page")
    made = make_inputs(dict(zip(names, sizes, strict=True)), int(torch.randint(1 << 62, ())))
    return list(made["calls"][0].values())


def get_init_inputs():
    """Arguments of the constructor."""
    return [batch, heads, kv_heads, head_dim, seq, page]


def make_inputs(shape, seed, device="cpu"):
    """One call on small normal values and a shuffled pool of pages.

    ``shape["ragged"]``, where it is there and not 0, draws lengths from 1 to ``seq``.
    """
    names = ("batch", "heads", "kv_heads", "head_dim", "seq", "page")
    batch, heads, kv_heads, head_dim, seq, page = init = [shape[name] for name in names]
    rng = torch.Generator(device=device).manual_seed(seed)
    where = {"device": device, "generator": rng}
    pages = -(-seq // page)
    blocks = batch * pages + SPARE_PAGES
    query = torch.randn(batch, heads, head_dim, dtype=torch.bfloat16, **where) * SCALE
    kv_cache = torch.randn(blocks, page, kv_heads, 2 * head_dim, dtype=torch.bfloat16, **where)
    kv_cache *= SCALE
    order = torch.randperm(blocks, dtype=torch.int32, **where)
    seq_lens = torch.full((batch,), seq, dtype=torch.int32, device=device)
    if shape.get("ragged"):
        seq_lens = torch.randint(1, seq + 1, (batch,), dtype=torch.int32, **where)
    call = {
        "query": query,
        "kv_cache": kv_cache,
        "block_table": order[: batch * pages].reshape(batch, pages).contiguous(),
        "seq_lens": seq_lens,
    }
    return {"params": {"init": init}, "calls": [call]}


def reference(params, calls):
    """The output of each call as ``y``, float32 from float64."""
    names = ("query", "kv_cache", "block_table", "seq_lens")
    return [{"y": _attended(*(call[name] for name in names)).float()} for call in calls]


def _attended(query, kv_cache, block_table, seq_lens):
    """In float64, some sequences at a time."""
    _, page, kv_heads, both = kv_cache.shape
    batch, heads, head_dim = query.shape
    grouped = query.double().view(batch, kv_heads, heads // kv_heads, head_dim)
    tokens = block_table.shape[1] * page
    step = max(AT_ONCE // (tokens * kv_heads * both), 1)
    found = []
    for start in range(0, batch, step):
        part = slice(start, start + step)
        kv = kv_cache[block_table[part].long()].reshape(-1, tokens, kv_heads, both).double()
        keys, values = kv.split(head_dim, dim=-1)
        scores = torch.einsum("bhgd,bthd->bhgt", grouped[part], keys) * head_dim**-0.5
        held = torch.arange(tokens, device=query.device) < seq_lens[part, None]
        scores = scores.masked_fill(~held[:, None, None], float("-inf"))
        weights = scores.softmax(dim=-1)
        values = values.masked_fill(~held[:, :, None, None], 0)
        found.append(torch.einsum("bhgt,bthd->bhgd", weights, values))
    return torch.cat(found).view(batch, heads, head_dim)
