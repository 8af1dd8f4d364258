"""Stress cases of ``kimi-linear-decode``: states in which one part of the work decides the output.

With the drawn state each attention is already more than 30% of hidden (``GAINS`` of the reference);
here one is nearly all of it, S is zero so that what comes back is its update alone, all experts
chosen have about the same share, the new row of the cache is the one that is attended to.
"""

from tasks.case import Case
from tasks.tensors import as_array

SMALL = {
    "kda_heads": 2,
    "kda_head_dim": 64,
    "mla_heads": 2,
    "kv_lora": 128,
    "qk_nope": 64,
    "qk_rope": 16,
    "v_head": 64,
    "n_experts": 16,
    "n_active": 5,
    "moe_inter": 128,
    "hidden": 256,
    "dtype": "bfloat16",
}
WIDE = {
    "kda_heads": 32,
    "kda_head_dim": 128,
    "mla_heads": 32,
    "kv_lora": 512,
    "qk_nope": 128,
    "qk_rope": 64,
    "v_head": 128,
    "n_experts": 64,
    "n_active": 8,
    "moe_inter": 1024,
    "hidden": 2304,
    "dtype": "bfloat16",
}
SIZES = ({**SMALL, "ctx": 61}, {**SMALL, "ctx": 130, "kda_heads": 6, "mla_heads": 6})
CHECKED = ({**WIDE, "ctx": 2048}, {**WIDE, "ctx": 8192})

S = ("0.S", "1.S", "2.S")
WINDOWS = tuple(f"{n}.{leaf}" for n in range(3) for leaf in ("cq", "ck", "cv"))
CACHE = ("3.c_kv", "3.k_rope")
STRESS = (  # name, inputs and their factor, weights (ends of names) and their factor, atol, gate
    ("attention alone", ("hidden",), 1e-3, (), 1.0, 0.15, 0.08),
    ("hidden large", ("hidden",), 8.0, (), 1.0, 0.5, None),
    ("no S", S, 0.0, (), 1.0, 0.15, None),
    ("S large", S, 10.0, (), 1.0, 0.5, None),
    ("S faint", S, 0.01, (), 1.0, 0.15, None),
    ("windows large", WINDOWS, 10.0, (), 1.0, 0.5, None),
    ("cache sharp", CACHE, 3.0, (), 1.0, 0.5, None),
    ("cache faint", CACHE, 0.1, ("3.attn.o_proj.scales",), 10.0, 0.15, None),
    ("new row attended to", (), 1.0, ("3.attn.kv_a.scales",), 4.0, 0.5, 0.1),
    ("experts alike", (), 1.0, ("moe.router.weight",), 0.125, 0.15, None),
)
MARGIN = 0.1  # between the last expert chosen and the next, in standard deviations of the logits
TRIES = 40


def cases(reference, seed, tier, device):
    """All cases; on a GPU at the checked sizes too."""
    for number, size in enumerate((*SIZES, *(CHECKED if device == "cuda" else ()))):
        for n, stress in enumerate(STRESS):
            yield _case(reference.module, stress, size, seed + 1000 * number + n, device)


def _case(module, stress, size, seed, device):
    name, inputs, factor, ends, of_weights, atol, gate = stress
    for number in range(TRIES):
        drawn = seed + (number << 20)
        weights = module.make_weights(size, drawn, device)
        for leaf in weights:
            if leaf.endswith(ends) and ends:
                weights[leaf] = weights[leaf] * of_weights
        made = module.make_inputs(size, drawn, device)
        (call,) = made["calls"]
        for leaf in inputs:
            call[leaf] = call[leaf] * factor
        if name != "experts alike" or margin(module, weights, size, call) > MARGIN:
            break
    (wanted,) = module.reference({**made["params"], "weights": weights}, [call])
    plain = weights if device == "cuda" else _arrays(weights)
    return Case(
        f"{name}, hidden {size['hidden']}, ctx {size['ctx']}",
        "stress:" + name,
        str(drawn),
        {**made["params"], "weights": plain},
        [_arrays(call)],
        [_arrays(wanted)],
        atol=atol,
        rms_ratio=gate,
    )


def _arrays(tensors):
    return {name: as_array(value) for name, value in tensors.items()}


def margin(module, weights, size, call):
    """The least lead, over the blocks, of the last expert chosen over the first that is not."""
    cfg, least = module.build_config(size), float("inf")
    h = call["hidden"].float()
    for number, (kind, held) in enumerate(zip(cfg.pattern, module.nested(call, cfg), strict=True)):
        base = f"blocks.{number}."
        attention = module.kda if kind == "kda" else module.mla
        x = module.rms_norm(h, weights[base + "attn_norm"])
        h = h + attention(weights, base + "attn.", cfg, x, held)[0]
        x = module.rms_norm(h, weights[base + "moe_norm"])
        logits = (x @ weights[base + "moe.router.weight"].float().T).reshape(-1)
        best = logits.sort(descending=True).values
        lead = best[cfg.n_active - 1] - best[cfg.n_active]
        least = min(least, float(lead / logits.std()))
        h = h + module.experts(weights, base + "moe.", cfg, x)
    return least
