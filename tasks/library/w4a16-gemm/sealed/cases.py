"""Stress and property cases of ``w4a16-gemm``.

Stress is the public deck's: x is scaled, at small sizes everywhere and at scored sizes on a GPU.
The rest aims at what kernels of this kind get wrong: the order of the nibbles, scale and zero of
the wrong group or column, tails of M and N.
"""

import torch

from tasks.case import Case
from tasks.tensors import as_array

STRESS = ((1e-3, 1e-4, 5e-2), (64.0, 1.0, 5e-2))  # factor of x, atol, rtol
SMALL = ((1, 64, 256), (5, 72, 384), (70, 40, 256))
SCORED = ((1, 12288, 4096), (32, 12288, 4096), (1, 4096, 4096))
SCORED_IN_FULL = ((256, 12288, 4096), (16, 14336, 4096))
EDGES = (  # M, N, K: around tiles and splits, and next to nothing
    *((1, 8, 128), (2, 136, 128), (15, 24, 640), (16, 56, 512), (17, 64, 1152), (33, 72, 128)),
    *((64, 8, 256), (65, 136, 128), (128, 16, 128), (129, 8, 256), (3, 40, 2048)),
)
GROUP = 128
AGAIN = ((3, 72, 2048), (66, 40, 256))  # several calls on one setup: a workspace must not tell


def cases(reference, seed, tier, device):
    """All cases; scored sizes on a GPU only."""
    sizes = [(size, "cpu") for size in SMALL]
    if device == "cuda":
        sizes += [(size, device) for size in SCORED]
        sizes += [(size, device) for size in SCORED_IN_FULL if tier == "full"]
    for number, (size, where) in enumerate(sizes):
        for factor, atol, rtol in STRESS:
            drawn = _drawn(reference, size, seed + number, where)
            drawn["x"] = (drawn["x"].float() * factor).to(torch.bfloat16)
            label = f"x times {factor:g}"
            yield _case(reference, drawn, label, "stress:scale", seed, atol=atol, rtol=rtol)
    for number, size in enumerate(EDGES):
        yield _case(reference, _drawn(reference, size, seed + number), "edge", "property", seed)
    for number, size in enumerate(AGAIN):
        drawn = [_drawn(reference, size, seed + 50 + 10 * number + n) for n in range(3)]
        others = [one["x"] for one in drawn[1:]]
        yield _case(reference, drawn[0], "again and again", "property", seed, others)
    for number, (name, (size, change)) in enumerate(CHANGES.items()):
        drawn = _drawn(reference, size, seed + 100 + number)
        rng = torch.Generator().manual_seed(seed + number)
        change(drawn, rng)
        yield _case(reference, drawn, name, "property", seed)


def _drawn(reference, size, seed, device="cpu"):
    shape = {**dict(zip("MNK", size, strict=True)), "group": GROUP, "dtype": "bfloat16"}
    made = reference.make_calls(shape, seed, device)
    weights = reference.module.make_weights(shape, seed, device)
    return {"init": made["params"]["init"], "weights": weights, "x": made["calls"][0]["x"]}


def _case(reference, drawn, name, group, seed, others=(), **bounds):
    params = {"init": drawn["init"], "weights": drawn["weights"]}
    xs = [drawn["x"], *others]
    expected = reference.module.reference(params, [{"x": x} for x in xs])
    if not drawn["x"].is_cuda:
        params["weights"] = {key: as_array(value) for key, value in drawn["weights"].items()}
    calls = [{"x": as_array(x)} for x in xs]
    wanted = [{"y": as_array(output["y"])} for output in expected]
    label = f"{name}, {'x'.join(map(str, drawn['init'][:3]))}"
    return Case(label, group, str(seed), params, calls, wanted, **bounds)


def _one_of_each_row(drawn, rng):
    """x picks one row of the weights each: y is that row, dequantised."""
    M, K = drawn["x"].shape
    x = torch.zeros(M, K)
    x[torch.arange(M), (7 * torch.arange(M) + torch.randint(K, (1,), generator=rng)) % K] = 1.0
    drawn["x"] = x.to(torch.bfloat16)


def _ends_of_groups(drawn, rng):
    """x is zero but for the first and the last row of each group."""
    x = drawn["x"].float()
    inside = torch.arange(x.shape[1]) % GROUP
    x[:, (inside != 0) & (inside != GROUP - 1)] = 0
    drawn["x"] = x.to(torch.bfloat16)


def _rows_apart(drawn, rng):
    x = drawn["x"].float()
    exponents = torch.randint(-6, 7, (x.shape[0], 1), generator=rng)
    drawn["x"] = (x * 2.0**exponents).to(torch.bfloat16)


def _scales_apart(drawn, rng):
    """Scales of neighbouring groups and columns differ up to 2**10 times."""
    scales = drawn["weights"]["scales"]
    exponents = torch.randint(-5, 6, scales.shape, generator=rng)
    drawn["weights"]["scales"] = (scales.float() * 2.0**exponents).to(torch.bfloat16)


def _zeros_apart(drawn, rng):
    """Any zero from 0 to 15, whatever the group's values are."""
    zeros = drawn["weights"]["zeros"]
    found = torch.randint(0, 16, zeros.shape, generator=rng)
    drawn["weights"]["zeros"] = found.to(torch.bfloat16)


def _outer_zeros(drawn, rng):
    """Zeros of 0 and 15 only: groups that lie on one side."""
    zeros = drawn["weights"]["zeros"]
    found = 15 * torch.randint(0, 2, zeros.shape, generator=rng)
    drawn["weights"]["zeros"] = found.to(torch.bfloat16)


def _any_bytes(drawn, rng):
    w_q = drawn["weights"]["w_q"]
    found = torch.randint(0, 256, w_q.shape, generator=rng)
    drawn["weights"]["w_q"] = found.to(torch.uint8)


def _odd_rows_alone(drawn, rng):
    """Even rows are at their zero: only high nibbles count."""
    weights = drawn["weights"]
    zeros = weights["zeros"].to(torch.uint8).repeat_interleave(GROUP // 2, dim=0)
    weights["w_q"] = (weights["w_q"] & 0xF0) | zeros


def _large_mean(drawn, rng):
    """x with a mean of ten deviations: what is taken off for the zeros is most of the sum."""
    drawn["x"] = (drawn["x"].float() + 10).to(torch.bfloat16)


def _last_group_alone(drawn, rng):
    x = drawn["x"].float()
    x[:, :-GROUP] = 0
    drawn["x"] = x.to(torch.bfloat16)


CHANGES = {
    "one of each row": ((60, 72, 256), _one_of_each_row),
    "one of each row, many": ((131, 24, 384), _one_of_each_row),
    "one of each row, single": ((1, 64, 512), _one_of_each_row),
    "ends of groups": ((9, 40, 640), _ends_of_groups),
    "rows apart": ((75, 48, 256), _rows_apart),
    "scales apart": ((12, 136, 384), _scales_apart),
    "scales apart, many": ((70, 72, 384), _scales_apart),
    "zeros apart": ((1, 136, 1024), _zeros_apart),
    "zeros apart, many": ((66, 40, 384), _zeros_apart),
    "outer zeros": ((20, 64, 256), _outer_zeros),
    "any bytes": ((11, 72, 384), _any_bytes),
    "odd rows alone": ((4, 64, 256), _odd_rows_alone),
    "large mean": ((8, 80, 512), _large_mean),
    "the last group alone": ((2, 64, 1152), _last_group_alone),
}
"""What is changed about a draw, by name, and at which size."""
