"""From the canonical call to ``Model(B, H, S, D).forward(q, k, v)``: the output."""

import torch


def setup(entries, params):
    """The model with its state dict."""
    weights = params["weights"]
    model = entries.Model(*params["init"])
    model = model.to(next(iter(weights.values())).device).eval()
    model.load_state_dict(weights, strict=True)
    return model


def run(_entries, model, inputs):
    """One call."""
    with torch.no_grad():
        return {"y": model(inputs["q"], inputs["k"], inputs["v"])}
