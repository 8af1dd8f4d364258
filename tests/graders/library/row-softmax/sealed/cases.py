"""Property cases of the softmax."""

import numpy as np

from tasks.case import Case


def cases(reference, seed, tier, device):
    rng = np.random.Generator(np.random.Philox(seed))
    for n in range(20 if tier == "full" else 5):
        shape = {"R": int(rng.integers(1, 9)), "N": int(rng.integers(1, 700)), "dtype": "float32"}
        made = reference.make_inputs(shape, int(rng.integers(1 << 30)))
        expected = reference.reference(made["params"], made["calls"])
        yield Case(
            f"property {n}", "property", f"{seed}/{n}", made["params"], made["calls"], expected
        )
