"""Sum, number of positive elements and last element of each row."""

import numpy as np


def sums(x):
    y = x.sum(axis=1, dtype=np.float64).astype(x.dtype)
    return {"y": y, "state": {"count": (x > 0).sum(axis=1), "last": x[:, -1].copy()}}
