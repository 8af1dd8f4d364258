"""From the canonical call to ``Model(B, T, H, K, V, chunk).forward(q, k, v, g, beta)``."""

import torch


def setup(entries, params):
    """The model; its state dict is empty."""
    model = entries.Model(*params["init"])
    model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    model.load_state_dict(params.get("weights", {}), strict=True)
    return model


def run(_entries, model, inputs):
    """One call."""
    with torch.no_grad():
        return model(inputs["q"], inputs["k"], inputs["v"], inputs["g"], inputs["beta"])
