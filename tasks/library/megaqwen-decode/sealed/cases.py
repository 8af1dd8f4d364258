"""Cases of ``megaqwen-decode``: own prefills, edges of the context, and caches unlike the dealt.

Where values are large, so are honest errors: the elementwise tolerance then grows with the hidden.
Caches are part of ``params`` (they are dealt before the call), so they are varied here; the hidden
of a call varies in the generated cases.
"""

import numpy as np

from tasks.case import Case
from tasks.tensors import as_array

EDGES = ((1, 1), (2, 2), (15, 2), (16, 1), (63, 2), (64, 1), (127, 2), (255, 2))  # ctx, steps
PREFILLS = ((1, 1), (9, 2))
CHECKED = ((128, 8), (256, 8), (512, 4))  # on a GPU, as on the public deck
LONG = (8192, 4)
STRESSED, SCORED = (41, 2), (2048, 64)
TOLERANCE = 0.08


def cases(reference, seed, tier, device):
    """All cases; ``full`` has one long prefill, on a GPU only."""
    on_gpu = device == "cuda"
    size = SCORED if on_gpu else STRESSED
    for number, (name, change) in enumerate(_STRESS.items()):
        if not (on_gpu and name in _SHORT_ONLY):
            made = _made(reference, size, seed + number, dealt=1, device=device)
            change(made)
            yield _case(reference, made, f"{name}, {_named(size)}", "stress:scale", seed + number)
    prefills = [*PREFILLS, *(CHECKED if on_gpu else ())]
    prefills += [LONG] if on_gpu and tier == "full" else []
    for number, size in enumerate(prefills):
        made = _made(reference, size, seed + number, dealt=0, device=device)
        yield _case(reference, made, f"prefill, {_named(size)}", "property", seed + number)
    for number, size in enumerate(EDGES):
        made = _made(reference, size, seed + number, dealt=1, device=device)
        yield _case(reference, made, f"context, {_named(size)}", "property", seed + number)
    yield _repeated(reference, seed, device)


def _named(size):
    return "{} + {}".format(*size)


def _made(reference, size, seed, dealt, device):
    """One draw as tensors."""
    shape = {"ctx": size[0], "steps": size[1], "layers": 4, "dealt": dealt}
    made = reference.module.make_inputs(shape, seed, device)
    made["params"]["weights"] = dict(reference.module.make_weights(shape, seed, device))
    return made


def _case(reference, made, name, group, seed, calls=None):
    calls = calls or made["calls"]
    expected = [
        {leaf: as_array(value) for leaf, value in outputs.items()}
        for outputs in reference.reference(made["params"], calls)
    ]
    params = dict(made["params"])
    if calls[0]["hidden"].device.type == "cpu":
        params["weights"] = {n: as_array(value) for n, value in params["weights"].items()}
    held = [{leaf: as_array(value) for leaf, value in call.items()} for call in calls]
    atol = TOLERANCE * max(1.0, *(_size(outputs["hidden"]) for outputs in expected))
    return Case(name, group, str(seed), params, held, expected, atol=atol, rtol=TOLERANCE)


def _size(bits):
    wide = (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return float(np.sqrt(np.mean(wide**2)))


def _repeated(reference, seed, device):
    """A, B, A on one setup: each begins where the first began, on rows that the last has left."""
    one, other = (_made(reference, (50, 3), seed + n, dealt=1, device=device) for n in range(2))
    calls = [one["calls"][0], other["calls"][0], one["calls"][0]]
    return _case(reference, one, "A, B, A", "property", seed, calls)


# --- what is unlike the dealt --------------------------------------------------------------------


def _hidden(factor):
    def change(made):
        call = made["calls"][0]
        made["calls"][0] = {**call, "hidden": call["hidden"] * factor}

    return change


def _cache(name, factor):
    def change(made):
        weights = made["params"]["weights"]
        weights[f"state.{name}"] = weights[f"state.{name}"] * factor

    return change


def _magnitudes(made):
    """Rows of v from a thousandth to four times: what a common scale of few bits would lose."""
    values = made["params"]["weights"]["state.v"].clone()
    for row in range(values.shape[2]):
        values[:, :, row] *= (1e-3, 1.0, 0.05, 4.0)[row % 4]
    made["params"]["weights"]["state.v"] = values


def _far_values(made):
    """The first and the last old row have values that no other row has."""
    values = made["params"]["weights"]["state.v"].clone()
    values[:, :, 0] += 12
    values[:, :, -1] -= 12
    made["params"]["weights"]["state.v"] = values


def _one_key(made):
    """All old keys alike, so that their weights are: what is left out is a share of the mean."""
    weights = made["params"]["weights"]
    keys = weights["state.k"]
    weights["state.k"] = keys[:, :, :1].expand_as(keys).contiguous()


def _apart(made):
    """Heads of very different values: a head that reads another's rows is far off."""
    values = made["params"]["weights"]["state.v"].clone()
    for head in range(values.shape[1]):
        values[:, head] += (-3, 2, -1, 0, 1, -2, 3, 4)[head]
    made["params"]["weights"]["state.v"] = values


_STRESS = {
    "hidden x 0.01": _hidden(0.01),
    "hidden x 8": _hidden(8.0),
    "flat scores": _cache("k", 0.01),
    "no old values": _cache("v", 0.0),
    "sharp scores": _cache("k", 2.0),
    "large values": _cache("v", 6.0),
    "magnitudes": _magnitudes,
    "far values": _far_values,
    "one key": _one_key,
    "heads apart": _apart,
}
_SHORT_ONLY = ("sharp scores", "large values", "heads apart", "far values")
"""With them, 64 steps are chaotic: see ``SCALES`` of the reference."""
