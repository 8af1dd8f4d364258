import numpy as np


def rms_norm(x, weight, eps):
    y = np.empty(x.shape, x.dtype)
    for row in range(x.shape[0]):
        mean = np.mean(x[row] ** 2)
        y[row] = x[row] / np.sqrt(mean + np.float32(eps)) * weight
    return y
