"""silu(x W_gate[e]) * (x W_up[e]) for rows that lie grouped by expert.

Rows ``expert_offsets[e]`` to ``expert_offsets[e + 1]`` of ``hidden_states`` (T_total * K, H) belong
to expert e; an expert may have any number of rows, none included. Sums are float32, the result is
rounded to bfloat16 once. The module interface is that of the public deck:
``Model(T_total, H, I, E, K)`` with ``W_gate`` and ``W_up`` (E, H, I), and ``get_inputs``,
``get_init_inputs`` at module level.
"""

import itertools

import torch
from torch import nn

T_total, H, I, E, K = 32768, 4096, 1536, 128, 8  # noqa: E741

X_SCALE, W_SCALE = 0.1, 0.02  # standard deviations of hidden states and weights


class Model(nn.Module):
    """What a submission replaces."""

    def __init__(self, T_total, H, I, E, K):  # noqa: E741
        super().__init__()
        self.T_total, self.H, self.I, self.E, self.K = T_total, H, I, E, K
        self.W_gate = nn.Parameter(torch.empty(E, H, I, dtype=torch.bfloat16))
        self.W_up = nn.Parameter(torch.empty(E, H, I, dtype=torch.bfloat16))
        nn.init.normal_(self.W_gate, std=W_SCALE)
        nn.init.normal_(self.W_up, std=W_SCALE)

    def forward(self, hidden_states, expert_offsets):
        """(T_total * K, I) bfloat16 of (T_total * K, H) bfloat16 and (E + 1,) int32."""
        return swiglu(hidden_states, expert_offsets, self.W_gate, self.W_up)


def get_inputs():
    """Inputs of the default size."""
    hidden_states = X_SCALE * torch.randn(T_total * K, H)
    return [hidden_states.bfloat16(), even_offsets(T_total * K, E)]


def get_init_inputs():
    """Arguments of the constructor."""
    return [T_total, H, I, E, K]


def swiglu(hidden_states, expert_offsets, W_gate, W_up):
    """The result, expert by expert: beside it, memory for one expert in float32."""
    y = hidden_states.new_empty(hidden_states.shape[0], W_gate.shape[2])
    bounds = expert_offsets.tolist()
    for e, (begin, end) in enumerate(itertools.pairwise(bounds)):
        if end > begin:
            x = hidden_states[begin:end].float()
            gate = x @ W_gate[e].float()
            up = x @ W_up[e].float()
            y[begin:end] = nn.functional.silu(gate) * up
    return y


def even_offsets(rows, experts, device="cpu"):
    """(experts + 1,) int32: as many rows for each expert, give or take one."""
    return (torch.arange(experts + 1, device=device) * rows // experts).int()


def make_inputs(shape, seed, device="cpu"):
    """One call on normal hidden states, dealt evenly to the experts."""
    rng = torch.Generator(device=device).manual_seed(seed)
    rows = shape["T_total"] * shape["K"]
    x = torch.empty(rows, shape["H"], dtype=torch.bfloat16, device=device)
    x.normal_(0, X_SCALE, generator=rng)
    offsets = even_offsets(rows, shape["E"], device)
    init = [shape[name] for name in ("T_total", "H", "I", "E", "K")]
    return {"params": {"init": init}, "calls": [{"hidden_states": x, "expert_offsets": offsets}]}


def make_weights(shape, seed, device="cpu"):
    """The state dict; a stream of its own, or hidden states would repeat in the weights."""
    rng = torch.Generator(device=device).manual_seed(seed ^ 0x5EED)
    size = (shape["E"], shape["H"], shape["I"])
    found = {}
    for name in ("W_gate", "W_up"):
        found[name] = torch.empty(size, dtype=torch.bfloat16, device=device)
        found[name].normal_(0, W_SCALE, generator=rng)
    return found


def reference(params, calls):
    """The outputs of each call."""
    weights = params["weights"]
    return [
        {
            "y": swiglu(
                call["hidden_states"], call["expert_offsets"], weights["W_gate"], weights["W_up"]
            )
        }
        for call in calls
    ]
