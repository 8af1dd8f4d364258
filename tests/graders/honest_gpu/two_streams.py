"""Half of the rows on a second stream, joined before the return."""

import numpy as np

SIDE = []


def softmax(x):
    if isinstance(x, np.ndarray):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)
    import torch

    if not SIDE:
        SIDE.append(torch.cuda.Stream())
    side, here = SIDE[0], torch.cuda.current_stream()
    y = torch.empty(x.shape, device=x.device)
    half = x.shape[0] // 2
    side.wait_stream(here)
    with torch.cuda.stream(side):
        y[:half] = x[:half].softmax(1)
    y[half:] = x[half:].softmax(1)
    here.wait_stream(side)
    y.record_stream(side)
    return y
