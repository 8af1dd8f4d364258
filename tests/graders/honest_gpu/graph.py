"""A captured graph on buffers of its own; each call copies its input in and replays."""

import numpy as np

GRAPHS = {}


def softmax(x):
    if isinstance(x, np.ndarray):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)
    import torch

    if x.shape not in GRAPHS:
        held = x.contiguous().clone()
        held.softmax(1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = held.softmax(1)
        GRAPHS[x.shape] = held, y, graph
    held, y, graph = GRAPHS[x.shape]
    held.copy_(x)
    graph.replay()
    return y
