"""What forgers share: an honest softmax, and ways into the process that calls it.

Handed in beside each forger's ``solution.py``. On CUDA tensors and on NumPy arrays alike.
"""

import sys

import numpy as np


def honest(x):
    """The softmax, by the framework."""
    if hasattr(x, "is_cuda"):
        return x.softmax(1)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def digests():
    """The module that makes digests."""
    return sys.modules["_referee_digests"]


def pace():
    """The object that serves the paced calls above us on the stack; None elsewhere."""
    frame = sys._getframe(1)
    while frame is not None:
        held = frame.f_locals.get("self")
        if type(held).__name__ == "Pace":
            return held
        frame = frame.f_back
    return None


def answer(page, number, digest):
    """Write an answer into the page, as the digest would."""
    page[65], page[66] = digest
    page[64] = number


def scale_events(factor):
    """Let CUDA events say less than they measured."""
    try:
        import torch
    except ImportError:
        return
    measured = torch.cuda.Event.elapsed_time
    torch.cuda.Event.elapsed_time = lambda start, end: factor * measured(start, end)
