"""Stress and property cases of ``fp8-gemm``.

Stress is the public deck's: x or the weights are scaled in float32 and quantised again, at small
sizes everywhere and at scored sizes on a GPU. The rest aims at what kernels of this kind get wrong:
tails of M, N and K, rows that begin at odd addresses, and the scale of the wrong column.
"""

import torch

from tasks.case import Case
from tasks.tensors import as_array

STRESS = (  # what is scaled, factor, atol, rtol
    ("x", 1e-3, 5e-4, 5e-2),
    ("x", 64.0, 12.0, 5e-2),
    ("weight", 1e-2, 3e-3, 5e-2),
)
SMALL = ((33, 48, 67), (70, 72, 256), (5, 130, 515))
SCORED = ((4096, 4096, 4127), (32, 8192, 8192))
SCORED_IN_FULL = ((4096, 4096, 4096), (4096, 14336, 4096))
EDGES = (  # M, N, K: around tiles, around multiples of 16, and next to nothing
    *((1, 1, 1), (1, 64, 16), (2, 3, 15), (16, 8, 17), (64, 129, 127), (65, 64, 129)),
    *((128, 65, 33), (129, 7, 144), (31, 256, 1), (17, 40, 1031), (96, 24, 528)),
)
AGAIN = ((3, 136, 2100), (66, 40, 200))  # several calls on one setup: a workspace must not tell


def cases(reference, seed, tier, device):
    """All cases; scored sizes on a GPU only."""
    sizes = [(size, "cpu") for size in SMALL]
    if device == "cuda":
        sizes += [(size, device) for size in SCORED]
        sizes += [(size, device) for size in SCORED_IN_FULL if tier == "full"]
    for number, (size, where) in enumerate(sizes):
        for name, factor, atol, rtol in STRESS:
            drawn = _drawn(reference, size, seed + number, where)
            tensors = drawn["weights"] if name == "weight" else drawn
            tensors[name] = _quantised(tensors[name].float() * factor)
            label = f"{name} times {factor:g}"
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
    shape = {**dict(zip("MNK", size, strict=True)), "dtype": "float8_e4m3"}
    made = reference.make_calls(shape, seed, device)
    weights = reference.module.make_weights(shape, seed, device)
    return {"init": made["params"]["init"], "weights": weights, "x": made["calls"][0]["x"]}


def _quantised(values):
    return values.to(torch.float8_e4m3fn)


def _case(reference, drawn, name, group, seed, others=(), **bounds):
    params = {"init": drawn["init"], "weights": drawn["weights"]}
    xs = [drawn["x"], *others]
    expected = reference.module.reference(params, [{"x": x} for x in xs])
    if not drawn["x"].is_cuda:
        params["weights"] = {key: as_array(value) for key, value in drawn["weights"].items()}
    calls = [{"x": as_array(x)} for x in xs]
    wanted = [{"y": as_array(output["y"])} for output in expected]
    label = f"{name}, {'x'.join(map(str, drawn['init']))}"
    return Case(label, group, str(seed), params, calls, wanted, **bounds)


def _one_of_each_row(drawn, rng):
    """x picks one column of the weights a row, the last ones first: nothing to average out."""
    x = drawn["x"]
    M, K = x.shape
    picked = torch.zeros(M, K)
    picked[torch.arange(M), (K - 1 - torch.arange(M)) % K] = 1.5
    drawn["x"] = _quantised(picked)


def _tail_alone(drawn, rng):
    """All but the last column of x is zero."""
    x = drawn["x"].float()
    x[:, :-1] = 0
    x[:, -1] = 2.0
    drawn["x"] = _quantised(x)


def _large_tail(drawn, rng):
    x = drawn["x"].float()
    x[:, -3:] *= 64
    drawn["x"] = _quantised(x)


def _rows_apart(drawn, rng):
    """Rows of x from 2**-5 to 2**5 times the usual: a row of the wrong tile shows."""
    x = drawn["x"].float()
    exponents = torch.randint(-5, 6, (x.shape[0], 1), generator=rng)
    drawn["x"] = _quantised(x * 2.0**exponents)


def _columns_apart(drawn, rng):
    scale = drawn["weights"]["weight_scale"]
    exponents = torch.randint(-10, 5, scale.shape, generator=rng)
    drawn["weights"]["weight_scale"] = scale * 2.0**exponents


def _some_zeros(drawn, rng):
    """Zero columns of y by their scale or by their weights, zero rows of x."""
    weights = drawn["weights"]
    kept = torch.rand(weights["weight_scale"].shape, generator=rng) > 0.3
    weights["weight_scale"] = weights["weight_scale"] * kept
    weight = weights["weight"].float()
    weight[::3] = 0
    weights["weight"] = _quantised(weight)
    x = drawn["x"].float()
    x[1::2] = 0
    drawn["x"] = _quantised(x)


def _largest(drawn, rng):
    """Nothing but the largest magnitudes of e4m3, of random signs."""
    for name, tensors in (("x", drawn), ("weight", drawn["weights"])):
        signs = torch.randint(0, 2, tensors[name].shape, generator=rng) * 2.0 - 1
        tensors[name] = _quantised(signs * 448)


def _smallest(drawn, rng):
    """Nothing but subnormal numbers: x is a multiple of 2**-9 below 2**-6."""
    steps = torch.randint(-7, 8, drawn["x"].shape, generator=rng)
    drawn["x"] = _quantised(steps * 2.0**-9)


CHANGES = {
    "one of each row": ((40, 72, 67), _one_of_each_row),
    "one of each row, wide": ((130, 70, 131), _one_of_each_row),
    "the tail alone": ((20, 64, 257), _tail_alone),
    "the tail alone, wide": ((70, 64, 129), _tail_alone),
    "a large tail": ((33, 40, 143), _large_tail),
    "rows apart": ((72, 48, 96), _rows_apart),
    "columns apart": ((24, 200, 80), _columns_apart),
    "columns apart, wide": ((90, 150, 80), _columns_apart),
    "some zeros": ((35, 66, 112), _some_zeros),
    "largest": ((19, 33, 200), _largest),
    "smallest": ((66, 40, 128), _smallest),
}
"""What is changed about a draw, by name, and at which size."""
