"""Stress cases of ``moe-swiglu``: the public deck's rescaled inputs, and skewed routing.

At eight times the nominal scale most outputs exceed the elementwise limit, so a row that was left
out shows there, however many rows there are.
"""

import numpy as np
import torch

from tasks.case import Case
from tasks.tensors import as_array

SCALES = ((0.01, 5e-4, 5e-2), (8.0, 0.1, 5e-2))  # factor, atol, rtol: the public deck's
SMALL = (
    {"T_total": 50, "H": 256, "I": 256, "E": 6, "K": 2},
    {"T_total": 131, "H": 128, "I": 256, "E": 3, "K": 1},
)
LARGE = (
    {"T_total": 4096, "H": 2048, "I": 1024, "E": 64, "K": 4},
    {"T_total": 2048, "H": 4096, "I": 1536, "E": 128, "K": 8},
)  # a scored shape; the largest one's weights with fewer rows, to be compared in seconds


def cases(reference, seed, tier, device):
    """All cases; those of scored sizes on a GPU only, where they are drawn and solved there."""
    sizes = SMALL + LARGE if device == "cuda" else SMALL
    for number, size in enumerate(sizes):
        made = reference.make_inputs({**size, "dtype": "bfloat16"}, seed + number, device)
        for factor, atol, rtol in SCALES:
            name = f"hidden states times {factor:g}"
            yield _case(reference, made, seed, name, factor, None, atol, rtol)
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, number])))
        rows = size["T_total"] * size["K"]
        for routing, bounds in _routings(rng, rows, size["E"]):
            yield _case(reference, made, seed, routing, 8.0, bounds, 0.1, 5e-2)


def _routings(rng, rows, experts):
    """Name and offsets: what real traffic does to the even split."""
    yield "random routing", _offsets(rng.multinomial(rows, np.full(experts, 1 / experts)))
    weights = rng.permutation(np.arange(1, experts + 1) ** -1.5)
    yield "skewed routing", _offsets(rng.multinomial(rows, weights / weights.sum()))
    alone = np.zeros(experts, np.int64)
    alone[rng.integers(experts)] = rows
    yield "one expert has all", _offsets(alone)
    last = np.zeros(experts, np.int64)
    last[-1], last[0] = 1, rows - 1
    yield "the last expert has one row", _offsets(last)
    sparse = np.zeros(experts, np.int64)
    sparse[1::2] = rng.multinomial(rows, np.full(len(sparse[1::2]), 1 / len(sparse[1::2])))
    yield "every second expert has none", _offsets(sparse)


def _offsets(counts):
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def _case(reference, made, seed, name, factor, bounds, atol, rtol):
    call = reference.typed(made["calls"][0])
    x, offsets = (call["hidden_states"].float() * factor).bfloat16(), call["expert_offsets"]
    if bounds is not None:
        offsets = torch.from_numpy(bounds).to(offsets.device)
    changed = {"hidden_states": x, "expert_offsets": offsets}
    (expected,) = reference.reference(made["params"], [changed])
    group = "stress:scale" if bounds is None else "stress:routing"
    size = "x".join(map(str, made["params"]["init"]))
    return Case(
        f"{name}, {size}",
        group,
        str(seed),
        made["params"],
        [_arrays(changed)],
        [_arrays(expected)],
        atol=atol,
        rtol=rtol,
    )


def _arrays(leaves):
    return {name: as_array(leaf) for name, leaf in leaves.items()}
