"""Stress cases: other magnitudes, rows of zeros. Generated cases come on top by themselves.

``reference`` serves NumPy arrays here: bfloat16 travels as its bits.
"""

import numpy as np

from tasks.case import Case
from tasks.rawfloats import decoded, encoded

SIZES = ((4, 257), (1, 1), (7, 64))


def cases(reference, seed, tier, device):
    """All cases of a plan; the same seed gives the same."""
    for number, (R, N) in enumerate(SIZES if tier == "full" else SIZES[:2]):
        shape = {"R": R, "N": N, "dtype": "bfloat16"}
        made = reference.make_inputs(shape, (seed + number) % (1 << 63))
        x = decoded("bfloat16", made["calls"][0]["x"])
        for factor in (0.01, 100.0):
            yield _case(reference, f"scale {factor:g}, {R}x{N}", made, x * np.float32(factor))
        x = x.copy()
        x[0] = 0
        yield _case(reference, f"a row of zeros, {R}x{N}", made, x)


def _case(reference, name, made, x):
    call = {"x": encoded("bfloat16", x)}
    expected = reference.reference(made["params"], [call])
    return Case(name, "stress:inputs", name, made["params"], [call], expected)
