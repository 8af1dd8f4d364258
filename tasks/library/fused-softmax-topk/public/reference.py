"""Top-k of a float64 softmax: exact order, ties by ascending index.

``logits`` is (B, T, V): float32, float16, or bfloat16 as its raw bits in ``uint16`` (then
``params["bfloat16"]`` is true; NumPy has no such type). Results are int64 and float32, (B, T, k).
Works row by row: beside the logits it needs a few arrays of V. CUDA tensors stay on their device.
"""

import numpy as np

SCALE = 2.0  # of the logits: the likeliest of 50,000 tokens then gets about 1%
_CHUNK = 1 << 18
ON_DEVICE = True  # `make_inputs` takes a device, `reference` takes CUDA tensors


def make_inputs(shape, seed, device="cpu"):
    """One call on normal logits of standard deviation ``SCALE``."""
    if device != "cpu":
        return _on_device(shape, seed, device)
    rng = np.random.Generator(np.random.Philox(seed))
    logits = SCALE * normals(rng, (shape["B"], shape["T"], shape["V"]))
    is_bfloat16 = shape["dtype"] == "bfloat16"
    logits = to_bfloat16(logits) if is_bfloat16 else logits.astype(shape["dtype"], copy=False)
    params = {"k": shape["k"], "bfloat16": is_bfloat16}
    return {"params": params, "calls": [{"logits": logits}]}


def _on_device(shape, seed, device):
    import torch  # noqa: PLC0415 - CPU machines have none

    rng = torch.Generator(device=device).manual_seed(seed)
    size = (shape["B"], shape["T"], shape["V"])
    logits = SCALE * torch.randn(size, device=device, generator=rng)
    is_bfloat16 = shape["dtype"] == "bfloat16"
    logits = logits.to(getattr(torch, shape["dtype"]))
    logits = logits.view(torch.uint16) if is_bfloat16 else logits
    params = {"k": shape["k"], "bfloat16": is_bfloat16}
    return {"params": params, "calls": [{"logits": logits}]}


def reference(params, calls):
    """The outputs of each call: ``indices, probabilities``."""
    if calls and hasattr(calls[0]["logits"], "is_cuda"):
        return [_of_tensor(params, call["logits"]) for call in calls]
    widen = from_bfloat16 if params.get("bfloat16") else _to_float32
    return [_one(call["logits"], int(params["k"]), widen) for call in calls]


def _of_tensor(params, logits):
    import torch  # noqa: PLC0415 - CPU machines have none

    row = logits.view(torch.bfloat16) if params.get("bfloat16") else logits
    largest, order = row.float().sort(dim=-1, descending=True, stable=True)
    k = int(params["k"])
    weights = (row.double() - largest[..., :1].double()).exp_()
    order = order[..., :k].contiguous()
    probabilities = weights.gather(-1, order) / weights.sum(-1, keepdim=True)
    return {"indices": order, "probabilities": probabilities.float()}


def normals(rng, shape):
    """float32 normals by Box and Muller in cache-sized chunks: four times as fast as ziggurat."""
    out = np.empty(int(np.prod(shape)), np.float32)
    for start in range(0, out.size, _CHUNK):
        part = out[start : start + _CHUNK]
        half = (part.size + 1) // 2
        radius = np.sqrt(-2 * np.log(1 - rng.random(half, np.float32)))
        angle = np.float32(2 * np.pi) * rng.random(half, np.float32)
        part[:half] = radius * np.cos(angle)
        part[half:] = (radius * np.sin(angle))[: part.size - half]
    return out.reshape(shape)


def to_bfloat16(values):
    """float32 to bfloat16 bits, rounded to nearest even; NaN is not handled."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits):
    """bfloat16 bits to float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _to_float32(row):
    return row.astype(np.float32, copy=False)


def _one(logits, k, widen):
    B, T, V = logits.shape
    indices = np.empty((B, T, k), np.int64)
    probabilities = np.empty((B, T, k), np.float32)
    weights = np.empty(V, np.float64)
    for b, t in np.ndindex(B, T):
        row = widen(logits[b, t])
        order = indices[b, t] = _largest(row, k)
        top = np.float64(row[order[0]])
        np.subtract(row, top, out=weights)
        np.exp(weights, out=weights)
        probabilities[b, t] = weights[order] / weights.sum()
    return {"indices": indices, "probabilities": probabilities}


def _largest(row, k):
    """Indices of the k largest, descending; equal values by ascending index."""
    candidates = np.flatnonzero(row >= _lower_bound(row, k))
    return candidates[np.lexsort((candidates, -row[candidates]))[:k]]


def _lower_bound(row, k):
    """A value that at least k elements reach: k of the maxima of disjoint groups do."""
    length = row.size // (4 * k)
    if length < 4:
        return np.partition(row, row.size - k)[row.size - k]
    groups = row.size // length
    maxima = row[: length * groups].reshape(length, groups).max(axis=0)
    return np.partition(maxima, groups - k)[groups - k]
