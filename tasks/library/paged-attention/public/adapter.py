"""From the canonical call to ``Model(...).forward(query, kv_cache, block_table, seq_lens)``."""

import torch


def setup(entries, params):
    """The model; it has no state of its own."""
    model = entries.Model(*params["init"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device).eval()
    model.load_state_dict({}, strict=True)
    return model


def run(_entries, model, inputs):
    """One call."""
    names = ("query", "kv_cache", "block_table", "seq_lens")
    with torch.no_grad():
        return model(*(inputs[name] for name in names))
