"""Stress cases of ``glm-fused-moe``: the public deck's rescaled tokens, and extreme routing."""

import torch

from tasks.case import Case
from tasks.tensors import as_array

SCALES = ((0.01, 5e-4, 5e-2), (8.0, 1.5, 5e-2))  # factor, atol, rtol: the public deck's
LARGE_WEIGHTS, LARGE_WEIGHTS_ATOL = "weights that are no softmax", 0.5
"""Terms are 24 times as large as by softmax and cancel: bfloat16 between the two products gives
errors up to 0.15 beside outputs near zero (seen on an H200). The gate holds as everywhere."""
FIXED = {"top_k": 8, "n_shared": 1}
SMALL = (
    {"T": 150, "E": 16, "H": 256, "I": 128, **FIXED},
    {"T": 3, "E": 40, "H": 256, "I": 128, **FIXED},
)
FULL = {"E": 256, "H": 4096, "I": 2048, **FIXED}
LARGE = ({"T": 1000, **FULL}, {"T": 4, **FULL}, {"T": 130, **FULL})


def cases(reference, seed, tier, device):
    """All cases; those with the weights of scored shapes on a GPU only, drawn and solved there."""
    sizes = SMALL + LARGE if device == "cuda" else SMALL
    for number, size in enumerate(sizes):
        made = reference.make_inputs({**size, "dtype": "bfloat16"}, seed + number, device)
        call = reference.typed(made["calls"][0])
        for factor, atol, rtol in SCALES:
            changed = {**call, "x": (call["x"].float() * factor).bfloat16()}
            name = f"x times {factor:g}"
            yield _case(reference, made, changed, name, "stress:scale", seed, atol, rtol)
        rng = torch.Generator().manual_seed(seed + number)
        for name, ids, weights in _routings(size, rng):
            device_of = call["x"].device
            changed = {
                "x": call["x"],
                "expert_ids": ids.contiguous().to(device_of),
                "expert_weights": weights.bfloat16().contiguous().to(device_of),
            }
            atol = LARGE_WEIGHTS_ATOL if name == LARGE_WEIGHTS else None
            yield _case(reference, made, changed, name, "stress:routing", seed, atol, None)


def _routings(size, rng):
    """Name, ids and weights."""
    T, E, top_k = size["T"], size["E"], size["top_k"]
    logits = torch.randn(T, E, generator=rng)
    ids = logits.argsort(dim=-1, descending=True)[:, :top_k]
    weights = torch.rand(T, top_k, generator=rng).softmax(dim=-1)
    yield "all tokens to the last experts", torch.arange(E - top_k, E).expand(T, top_k), weights
    in_turn = (torch.arange(T)[:, None] * top_k + torch.arange(top_k)) % E
    yield "experts in turn", in_turn, weights
    one = torch.zeros(T, top_k)
    one[torch.arange(T), torch.randint(top_k, (T,), generator=rng)] = 1
    yield "one expert has all the weight", ids, one
    yield (
        "the last choice has most of the weight",
        ids,
        (torch.arange(top_k) * 1.0).softmax(0).expand(T, top_k),
    )
    yield LARGE_WEIGHTS, ids, 3 * torch.randn(T, top_k, generator=rng)
    one_hot = logits.clone()
    one_hot[:, E // 2] = 100
    yield "one expert that all tokens visit", one_hot.argsort(dim=-1)[:, -top_k:], weights


def _case(reference, made, call, name, group, seed, atol, rtol):
    (expected,) = reference.reference(made["params"], [call])
    size = "x".join(map(str, made["params"]["init"]))
    return Case(
        f"{name}, {size}",
        group,
        str(seed),
        made["params"],
        [_arrays(call)],
        [_arrays(expected)],
        atol=atol,
        rtol=rtol,
    )


def _arrays(leaves):
    return {name: as_array(leaf) for name, leaf in leaves.items()}
