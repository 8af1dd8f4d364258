"""Stress and property cases of the row sum."""

import numpy as np

from tasks.case import Case


def cases(reference, seed, tier, device):
    rng = np.random.Generator(np.random.Philox(seed))
    for n in range(20 if tier == "full" else 5):
        shape = {"R": int(rng.integers(1, 9)), "N": int(rng.integers(1, 70)), "dtype": "float32"}
        made = reference.make_inputs(shape, int(rng.integers(1 << 30)))
        yield _case(reference, f"property {n}", "property", seed, made, None)
    big = reference.make_inputs({"R": 4, "N": 9, "dtype": "float32"}, seed)
    strided = {"x": np.repeat(big["calls"][0]["x"], 2, axis=1)[:, ::2]}
    big["calls"] = [strided]
    yield _case(reference, "strided", "stress:strided", seed, big, "edges")
    if device == "cuda":
        yield _case(reference, "on a GPU only", "property", seed, big, None)


def _case(reference, name, group, seed, made, item):
    expected = reference.reference(made["params"], made["calls"])
    return Case(
        name=name,
        group=group,
        seed=str(seed),
        params=made["params"],
        calls=made["calls"],
        expected=expected,
        item=item,
    )
