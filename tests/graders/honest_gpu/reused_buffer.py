"""One output buffer a shape, used again in every call."""

import numpy as np

BUFFERS = {}


def softmax(x):
    if isinstance(x, np.ndarray):
        if x.shape not in BUFFERS:
            BUFFERS[x.shape] = np.empty(x.shape, x.dtype)
        y = BUFFERS[x.shape]
        np.exp(x - x.max(axis=1, keepdims=True), out=y)
        y /= y.sum(axis=1, keepdims=True)
        return y
    import torch

    if x.shape not in BUFFERS:
        BUFFERS[x.shape] = torch.empty(x.shape, device=x.device)
    return torch.softmax(x, 1, out=BUFFERS[x.shape])
