"""From the canonical call to ``Model(T, E, top_k, n_shared, H, I)(x, ids, weights)``."""

import torch


def setup(entries, params):
    """The model with its state dict, made where the weights are: they are 13 GB."""
    weights = params["weights"]
    device = next(iter(weights.values())).device
    with torch.device(device):
        model = entries.Model(*params["init"])
    model = model.to(device).eval()
    model.load_state_dict(weights, strict=True)
    return model


def run(_entries, model, inputs):
    """One call."""
    with torch.no_grad():
        return model(inputs["x"], inputs["expert_ids"], inputs["expert_weights"])
