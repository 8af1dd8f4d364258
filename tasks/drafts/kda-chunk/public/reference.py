"""Kimi Delta Attention, the gated delta rule with a decay per channel, in its chunked form.

q, k are (B, T, H, K) bfloat16, v (B, T, H, V) bfloat16, g (B, T, H, K) float32 (log-decay), beta
(B, T, H) bfloat16 in (0, 1); the output is (B, T, H, V) bfloat16. Per head, with a state S (K, V)
that starts from 0, token by token, the same thing is::

    S = exp(g)[:, None] * S
    S = S + beta * outer(k, v - k @ S)
    o = (q * K**-0.5) @ S

The module interface is that of the public deck: ``Model(B, T, H, K, V, chunk)``, whose state dict
is empty, and ``get_inputs``, ``get_init_inputs`` at module level. There are no weights, hence no
``make_weights``. All arithmetic is float32; `reference` does not round its result to bfloat16.
"""

import torch
from torch import nn

B, T, H, K, V = 2, 1024, 8, 128, 128
chunk = 64

GROUP = 64
"""Chunks whose pairwise decays (chunk, chunk, K) are held at once: 128 MB of them at K = 128."""


class Model(nn.Module):
    """What a submission replaces. ``T`` is a multiple of ``chunk``."""

    def __init__(self, B, T, H, K, V, chunk=64):
        super().__init__()
        self.B, self.T, self.H, self.K, self.V = B, T, H, K, V
        self.chunk = chunk
        self.register_buffer("_dummy", torch.zeros(1), persistent=False)

    def forward(self, q, k, v, g, beta):
        """o, (B, T, H, V) bfloat16."""
        return chunked(q, k, v, g, beta, self.chunk).to(torch.bfloat16)


def chunked(q, k, v, g, beta, chunk):
    """o in float32. Raises ValueError where T is no multiple of ``chunk``."""
    if q.shape[1] % chunk:
        raise ValueError(f"T = {q.shape[1]} is no multiple of {chunk}")
    q, k, v, g, beta = (_in_chunks(x, chunk) for x in (q, k, v, g, beta[..., None]))
    q = q * q.shape[-1] ** -0.5
    G = g.cumsum(dim=-2)  # (B, H, N, C, K), as q and k are
    among_keys, among_queries = _pairs(q, k, G)
    lower = torch.tril(beta * among_keys, diagonal=-1)
    eye = torch.eye(chunk, device=q.device)
    right = beta * torch.cat([k * G.exp(), v], dim=-1)
    w, u = _unit_lower_solve(eye + lower, right).split([k.shape[-1], v.shape[-1]], dim=-1)
    kept = (G[..., -1:, :] - G).exp() * k  # what is left of each key at the end of its chunk
    o = _pass_on(q * G.exp(), among_queries, w, u, kept, G[..., -1, :].exp())
    return o.permute(0, 2, 3, 1, 4).reshape(o.shape[0], -1, o.shape[1], o.shape[-1])


def _pass_on(q, among_queries, w, u, kept, decay):
    """The state S (B, H, K, V) goes through the chunks in order; o (B, H, N, C, V)."""
    S = torch.zeros(*q.shape[:2], q.shape[-1], u.shape[-1], device=q.device)
    outputs = []
    for n in range(q.shape[2]):
        fresh = u[:, :, n] - w[:, :, n] @ S
        outputs.append(q[:, :, n] @ S + among_queries[:, :, n] @ fresh)
        S = decay[:, :, n, :, None] * S + kept[:, :, n].transpose(-1, -2) @ fresh
    return torch.stack(outputs, dim=2)


def _in_chunks(x, chunk):
    """(B, T, H, D) as (B, H, N, chunk, D) float32."""
    b, t, h, d = x.shape
    return x.float().reshape(b, t // chunk, chunk, h, d).permute(0, 3, 1, 2, 4).contiguous()


def _pairs(q, k, G):
    """Products of keys, and of queries, with the keys up to them, decayed: (B, H, N, C, C) each."""
    flat_q, flat_k, flat_G = (x.reshape(-1, *x.shape[-2:]) for x in (q, k, G))
    later = torch.ones(k.shape[-2], k.shape[-2], dtype=torch.bool, device=k.device).triu(1)
    found = []
    for at in range(0, len(flat_k), GROUP):
        q_part, k_part, G_part = (x[at : at + GROUP] for x in (flat_q, flat_k, flat_G))
        apart = G_part[:, :, None, :] - G_part[:, None, :, :]
        apart.masked_fill_(later[:, :, None], float("-inf"))
        decayed = apart.exp_().mul_(k_part[:, None, :, :])  # (group, C, C, K)
        both = torch.stack([k_part, q_part], dim=-1)
        found.append(decayed @ both)  # (group, C, C, 2)
    pairs = torch.cat(found).reshape(*k.shape[:-1], k.shape[-2], 2)
    return pairs[..., 0], pairs[..., 1]


def _unit_lower_solve(lower, right):
    return torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True)


def get_inputs():
    """Inputs of the default size."""
    shape = {"B": B, "T": T, "H": H, "K": K, "V": V, "chunk": chunk}
    return list(make_inputs(shape, torch.seed())["calls"][0].values())


def get_init_inputs():
    """Arguments of the constructor."""
    return [B, T, H, K, V, chunk]


def make_inputs(shape, seed, device="cpu"):
    """One call: q, k, v of 0.1 N, g of 0.1 N - 0.05, beta the sigmoid of N."""
    rng = torch.Generator(device=device).manual_seed(seed)
    B, T, H, K, V = (shape[name] for name in "BTHKV")

    def normal(*size):
        return torch.randn(size, device=device, generator=rng)

    call = {
        "q": (0.1 * normal(B, T, H, K)).to(torch.bfloat16),
        "k": (0.1 * normal(B, T, H, K)).to(torch.bfloat16),
        "v": (0.1 * normal(B, T, H, V)).to(torch.bfloat16),
        "g": 0.1 * normal(B, T, H, K) - 0.05,
        "beta": normal(B, T, H).sigmoid().to(torch.bfloat16),
    }
    return {"params": {"init": [B, T, H, K, V, shape["chunk"]]}, "calls": [call]}


def reference(params, calls):
    """The output of each call, before it is rounded to bfloat16."""
    chunk = params["init"][5]
    names = ("q", "k", "v", "g", "beta")
    return [{"y": chunked(*(call[name] for name in names), chunk)} for call in calls]
