"""A matrix product in float32 (exact enough against bfloat16); bits in NumPy, or CUDA tensors."""

import numpy as np

ON_DEVICE = True


def make_inputs(shape, seed, device="cpu"):
    """Two normal matrices."""
    size = (shape["N"], shape["N"])
    if device == "cpu":
        rng = np.random.Generator(np.random.Philox(seed))
        a, b = (to_bits(rng.standard_normal(size, np.float32)) for _ in range(2))
    else:
        import torch  # noqa: PLC0415 - CPU machines have none

        seeded = torch.Generator(device=device)
        seeded.manual_seed(seed)
        a, b = (
            torch.randn(size, device=device, dtype=torch.bfloat16, generator=seeded)
            for _ in range(2)
        )
    return {"params": {}, "calls": [{"a": a, "b": b}]}


def reference(params, calls):
    """The outputs of each call: ``c``."""
    return [{"c": _product(call["a"], call["b"])} for call in calls]


def _product(a, b):
    if isinstance(a, np.ndarray):
        return to_bits(from_bits(a) @ from_bits(b))
    import torch  # noqa: PLC0415 - CPU machines have none

    a, b = (x.view(torch.bfloat16).float() for x in (a, b))
    return (a @ b).bfloat16()


def to_bits(values):
    """float32 to bfloat16 bits, rounded to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bits(bits):
    """bfloat16 bits to float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
