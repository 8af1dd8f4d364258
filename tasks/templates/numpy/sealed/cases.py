"""Stress cases: other magnitudes, rows of zeros, views. Generated cases come on top."""

import numpy as np

from tasks.case import Case

SIZES = ((4, 257), (1, 1), (7, 64))


def cases(reference, seed, tier, device):
    """All cases of a plan; the same seed gives the same."""
    for number, (R, N) in enumerate(SIZES if tier == "full" else SIZES[:2]):
        made = reference.make_inputs({"R": R, "N": N, "dtype": "float32"}, seed + number)
        call = made["calls"][0]
        for factor in (1e-4, 1e3):
            x = call["x"] * np.float32(factor)
            yield _case(reference, f"scale {factor:g}, {R}x{N}", "scales", made, {**call, "x": x})
        x = call["x"].copy()
        x[0] = 0
        yield _case(reference, f"a row of zeros, {R}x{N}", "scales", made, {**call, "x": x})
        x = np.repeat(call["x"], 2, axis=1)[:, ::2]
        yield _case(reference, f"every second column, {R}x{N}", "views", made, {**call, "x": x})


def _case(reference, name, item, made, call):
    """A case that counts for an item of the rubric."""
    expected = reference.reference(made["params"], [call])
    return Case(name, "stress:inputs", name, made["params"], [call], expected, item=item)
