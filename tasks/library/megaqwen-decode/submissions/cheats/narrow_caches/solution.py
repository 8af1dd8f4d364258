"""Decoding of Qwen3 blocks over caches of eight bits: half of the traffic."""

import torch
from kernels import Model, steps


def prefill(model, ctx_len, seed):
    """Hidden (1024,), k and v of each layer."""
    size = (8, model.max_seq, 128)
    k, v = (
        [torch.zeros(size, dtype=torch.bfloat16, device=model.device) for _ in model.blocks]
        for _ in range(2)
    )
    hidden = torch.randn(1024, generator=torch.Generator().manual_seed(seed))
    hidden = hidden.bfloat16().to(model.device)
    return steps(model, hidden, k, v, 0, noise_of(ctx_len, seed + 1)), k, v


def decode_steps(model, hidden, k, v, start_pos, n, seed):
    """The hidden after `n` steps; the caches get their rows in place."""
    keys = [cache.to(torch.float8_e4m3fn).to(torch.bfloat16) for cache in k]
    values = [cache.to(torch.float8_e4m3fn).to(torch.bfloat16) for cache in v]
    hidden = steps(model, hidden, keys, values, start_pos, noise_of(n, seed + 2))
    for caches, narrow in ((k, keys), (v, values)):
        for cache, rows in zip(caches, narrow, strict=True):
            cache[:, start_pos : start_pos + n] = rows[:, start_pos : start_pos + n]
    return hidden


def run(model, ctx_len, n, seed):
    """Prefill, then decode."""
    hidden, k, v = prefill(model, ctx_len, seed)
    return decode_steps(model, hidden, k, v, ctx_len, n, seed)


def noise_of(n, seed):
    """One row a step."""
    return torch.randn(n, 1024, generator=torch.Generator().manual_seed(seed))
