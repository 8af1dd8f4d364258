"""NumPy."""

import numpy as np


def scaled_add(x, a, b):
    """y = a x + b."""
    return x * np.float32(a) + np.float32(b)
