"""Stress cases of ``topk``: the public deck's rescaled inputs, and ties across the k-th place."""

from tasks.case import Case

SCALES = ((1e-4, 1e-7, 1e-4), (1e3, 0.1, 1e-4))  # factor, atol, rtol: the public deck's


def cases(reference, seed, tier, device):
    """All cases, on the smoke sizes and one larger."""
    sizes = ({"batch": 2, "n": 300, "k": 5}, {"batch": 3, "n": 5000, "k": 33})
    for number, size in enumerate(sizes):
        made = reference.make_inputs({**size, "dtype": "float32"}, seed + number)
        for factor, atol, rtol in SCALES:
            x = made["calls"][0]["x"] * factor
            yield _case(reference, made, x.astype("float32"), f"scale {factor:g}", seed, atol, rtol)
        levels = made["calls"][0]["x"].round().astype("float32")
        yield _case(reference, made, levels, "few levels", seed, 0.0, 0.0)


def _case(reference, made, x, name, seed, atol, rtol):
    calls = [{"x": x}]
    expected = reference.reference(made["params"], calls)
    size = "x".join(map(str, x.shape))
    return Case(
        f"{name}, {size}",
        "stress:scale",
        str(seed),
        made["params"],
        calls,
        expected,
        atol=atol,
        rtol=rtol,
    )
