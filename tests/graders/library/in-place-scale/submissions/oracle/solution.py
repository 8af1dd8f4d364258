"""Rows minus their mean, times a weight for each column, in place."""

import numpy as np


def centre(x, weight):
    mean = x.mean(axis=1, dtype=np.float64, keepdims=True)
    x[...] = weight * (x - mean)
