"""Stress cases of ``kimi-linear-decode``: states in which one part of the work decides the output.

With the drawn state each attention is already more than 30% of hidden (``GAINS`` of the reference);
here one is nearly all of it, S is zero so that what comes back is its update alone, all experts
chosen have about the same share, the new row of the cache is the one that is attended to. Then
steps that follow each other: only they see what a step does to the state beyond what is compared.
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
SEEDS = 3  # of an undisturbed step at a checked size, as on the public deck
FOLLOWING = 5  # steps

S = ("0.S", "1.S", "2.S")
WINDOWS = tuple(f"{n}.{leaf}" for n in range(3) for leaf in ("cq", "ck", "cv"))
CACHE = ("state.3.c_kv", "state.3.k_rope")
SHARP = ("3.attn.kv_a.scales",)
STRESS = (  # name, what is scaled (ends of names) and by how much, twice; atol, gate
    ("attention alone", ("hidden",), 1e-3, (), 1.0, 0.15, 0.08),
    ("hidden large", ("hidden",), 8.0, (), 1.0, 0.5, None),
    ("no S", S, 0.0, (), 1.0, 0.15, None),
    ("S large", S, 10.0, (), 1.0, 0.5, None),
    ("S faint", S, 0.01, (), 1.0, 0.15, None),
    ("windows large", WINDOWS, 10.0, (), 1.0, 0.5, None),
    ("cache sharp", CACHE, 3.0, (), 1.0, 0.5, None),
    ("cache faint", CACHE, 0.1, ("3.attn.o_proj.scales",), 10.0, 0.15, None),
    ("new row attended to", SHARP, 4.0, (), 1.0, 0.5, 0.1),
    ("experts alike", ("moe.router.weight",), 0.125, (), 1.0, 0.15, None),
)
ON_DEVICE = ("attention alone", "no S", "cache sharp", "new row attended to")
"""Those of the quick tier at the checked sizes."""
MARGIN = 0.1  # between the last expert chosen and the next, in standard deviations of the logits
TRIES = 40


def cases(reference, seed, tier, device):
    """All cases; on a GPU at the checked sizes too. Those of a size share their weights."""
    module = reference.module
    for number, size in enumerate((*SIZES, *(CHECKED if device == "cuda" else ()))):
        is_small = size in SIZES
        weights = module.make_weights(size, seed + number, device)
        drawn = seed + 1000 * number
        for n in range(0 if is_small else SEEDS):
            yield _plain(module, size, drawn + n, device, weights)
        for n, stress in enumerate(STRESS):
            if is_small or tier == "full" or stress[0] in ON_DEVICE:
                yield _stressed(module, stress, size, drawn + n, device, weights)
        if is_small:
            yield _following(module, size, drawn, device, weights)


def _drawn(module, size, seed, device, weights):
    """Params and calls."""
    made = module.make_inputs(size, seed, device)
    return {**made["params"], "weights": {**weights}}, made["calls"]


def _plain(module, size, seed, device, weights):
    params, calls = _drawn(module, size, seed, device, weights)
    return _case(module, f"as drawn, {_named(size)}, {seed}", "property", seed, params, calls)


def _following(module, size, seed, device, weights):
    """Steps of which each goes on from the state that the one before it returned."""
    params, calls = _drawn(module, size, seed, device, weights)
    cfg = module.build_config(size)
    more = [{"hidden": module.init_token(cfg, seed + n, device)} for n in range(1, FOLLOWING)]
    params["follows"] = True
    return _case(module, f"steps, {_named(size)}", "property", seed, params, calls + more)


def _stressed(module, stress, size, seed, device, weights):
    name, first, factor, second, other_factor, atol, gate = stress
    for number in range(TRIES):
        drawn = seed + (number << 20)
        params, (call,) = _drawn(module, size, drawn, device, weights)
        for ends, by in ((first, factor), (second, other_factor)):
            for held in (params["weights"], call):
                held |= {leaf: held[leaf] * by for leaf in held if ends and leaf.endswith(ends)}
        if name != "experts alike" or margin(module, params["weights"], size, call) > MARGIN:
            break
    limits = {"atol": atol, "rms_ratio": gate}
    named = f"{name}, {_named(size)}"
    return _case(module, named, "stress:" + name, drawn, params, [call], **limits)


def _named(size):
    return f"hidden {size['hidden']}, ctx {size['ctx']}"


def _case(module, name, group, seed, params, calls, **limits):
    expected = [_arrays(wanted) for wanted in module.reference(params, calls)]
    if not calls[0]["hidden"].is_cuda:
        params = {**params, "weights": _arrays(params["weights"])}
    return Case(name, group, str(seed), params, [_arrays(c) for c in calls], expected, **limits)


def _arrays(tensors):
    return {name: as_array(value) for name, value in tensors.items()}


def margin(module, weights, size, call):
    """The least lead, over the blocks, of the last expert chosen over the first that is not."""
    cfg, least = module.build_config(size), float("inf")
    h = call["hidden"].float()
    pairs = zip(cfg.pattern, module.nested(call, weights, cfg), strict=True)
    for number, (kind, held) in enumerate(pairs):
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
