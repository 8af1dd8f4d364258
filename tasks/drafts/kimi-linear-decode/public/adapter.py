"""From the canonical call to ``Model(cfg).step(hidden, state)``, one step from a state dealt.

The state's leaves come as ``0.S``, ``0.cq`` ... ``3.k_rope``. Of what comes back the adapter takes
``hidden``, every leaf of the blocks with a state of fixed size, and of the caches that grow the row
of the new token and the last ``PAST`` rows before it.
"""

from dataclasses import dataclass

import torch

PAST = 32
LEAVES = {"kda": ("S", "cq", "ck", "cv"), "mla": ("c_kv", "k_rope")}


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
    """The config and the model with its state dict."""
    dims, weights = params["dims"], params["weights"]
    cfg = Config(**{name: dims[name] for name in Config.__dataclass_fields__ if name in dims})
    device = next(iter(weights.values())).device
    with torch.device(device):
        model = entries.Model(cfg)
    model = model.to(device).eval()
    model.load_state_dict(weights, strict=True)
    return cfg, model


def run(_entries, held, inputs):
    """One step."""
    cfg, model = held
    pairs = [*enumerate(cfg.pattern)]
    state = [{leaf: inputs[f"{n}.{leaf}"] for leaf in LEAVES[kind]} for n, kind in pairs]
    with torch.no_grad():
        hidden, after = model.step(inputs["hidden"], state)
    found = {"hidden": hidden}
    for n, kind in pairs:
        for leaf in LEAVES[kind]:
            value = after[n][leaf]
            if kind == "mla":
                begin = max(len(value) - 1 - PAST, 0)
                found[f"{n}.{leaf}"] = value[-1:]
                found[f"{n}.{leaf}_past"] = value[begin:-1]
            else:
                found[f"{n}.{leaf}"] = value
    return found
