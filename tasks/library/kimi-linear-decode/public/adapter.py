"""From the canonical call to ``Model(cfg).step(hidden, state)``: a call is one step.

The leaves of a KDA block's state come with the call as ``0.S``, ``0.cq`` and so on. Latent caches
are dealt in ``setup``, as the first ``ctx`` rows of memory with rows to spare, and every call
begins at the same position again; whoever writes the new row in place overwrites that of the call
before. Of what comes back the adapter takes ``hidden``, all leaves of the KDA blocks, and of each
cache the row of the new token.

Where calls follow each other, each after the first has a hidden alone, and goes on from what the
call before it returned.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import torch

SPARE = 64  # rows behind those of a cache
KDA, MLA = ("S", "cq", "ck", "cv"), ("c_kv", "k_rope")


@dataclass(frozen=True)
class Config:
    """What ``Model`` is given."""

    hidden: int = 2304
    kda_heads: int = 32
    kda_head_dim: int = 128
    short_conv: int = 4
    mla_heads: int = 32
    kv_lora: int = 512
    qk_nope: int = 128
    qk_rope: int = 64
    v_head: int = 128
    rope_theta: float = 1e4
    n_experts: int = 64
    n_active: int = 8
    n_shared: int = 1
    moe_inter: int = 1024
    routed_scaling: float = 2.446
    group: int = 128
    pattern: tuple = ("kda", "kda", "kda", "mla")
    dtype: torch.dtype = torch.bfloat16


def setup(entries, params):
    """The model with its state dict, and the caches."""
    dims, weights = params["dims"], dict(params["weights"])
    cfg = Config(**{name: dims[name] for name in Config.__dataclass_fields__ if name in dims})
    dealt = {name: weights.pop(name) for name in [*weights] if name.startswith("state.")}
    device = next(iter(weights.values())).device
    with torch.device(device):
        model = entries.Model(cfg)
    model = model.to(device).eval()
    model.load_state_dict(weights, strict=True)
    state = SimpleNamespace(model=model, follows=params["follows"], after=None, blocks=[])
    for n, kind in enumerate(cfg.pattern):
        names = [(name, f"{n}.{name}") for name in (KDA if kind == "kda" else MLA)]
        caches = {name: _with_room(dealt[f"state.{path}"]) for name, path in names if name in MLA}
        state.blocks.append((kind == "kda", names, caches))
    return state


def _with_room(cache):
    """The rows of a cache in memory that has more; what lies in those is no number."""
    rows, width = cache.shape
    memory = torch.full((rows + SPARE, width), float("nan"), dtype=cache.dtype, device=cache.device)
    memory[:rows] = cache
    return memory[:rows]


def run(_entries, state, inputs):
    """One step."""
    given = state.after
    if given is None:
        given = [
            {name: inputs[path] for name, path in names} if is_kda else dict(caches)
            for is_kda, names, caches in state.blocks
        ]
    rows = [
        None if is_kda else len(held["c_kv"])
        for (is_kda, *_), held in zip(state.blocks, given, strict=True)
    ]
    with torch.no_grad():
        hidden, after = state.model.step(inputs["hidden"], given)
    if state.follows:
        state.after = after
    found = {"hidden": hidden}
    for (is_kda, names, _), held, before in zip(state.blocks, after, rows, strict=True):
        for name, path in names:
            value = held[name]
            if not is_kda and len(value) != before + 1:
                raise ValueError(f"{path} has {len(value)} rows after a step, {before} before it")
            found[path] = value if is_kda else value[before:]
    return found
