"""From the canonical call to ``Model(R, N).forward(x)``."""

import torch


def setup(entries, params):
    """The model with its state dict."""
    weights = params["weights"]
    model = entries.Model(*params["init"]).to(next(iter(weights.values())).device).eval()
    model.load_state_dict(weights, strict=True)
    return model


def run(_entries, model, inputs):
    """One timed call."""
    with torch.no_grad():
        return model(inputs["x"])
