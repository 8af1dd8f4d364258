"""A mixture of experts: for each token a shared expert and top_k routed ones, weighted and summed.

An expert is w2 (silu(gate x) * (up x)), where w1 holds the I rows of gate and then those of up.
Everything is float32 between bfloat16 inputs and the one rounding of the result. The module
interface is that of the public deck: ``Model(T, E, top_k, n_shared, H, I)`` with ``w1_routed``
(E, 2I, H), ``w2_routed`` (E, H, I), ``w1_shared`` (n_shared, 2I, H), ``w2_shared``
(n_shared, H, I), and ``get_inputs``, ``get_init_inputs`` at module level.
"""

import torch
from torch import nn

T, E, top_k, n_shared, H, I = 4096, 256, 8, 1, 4096, 2048  # noqa: E741

W_SCALE = 0.02  # standard deviation of weights
SKEW = 0.5  # of what experts differ by in popularity, beside a token's own logits of 1


class Model(nn.Module):
    """What a submission replaces."""

    def __init__(self, T, E, top_k, n_shared, H, I):  # noqa: E741
        super().__init__()
        self.T, self.E, self.top_k, self.n_shared, self.H, self.I = T, E, top_k, n_shared, H, I
        for name, size in sizes(E, n_shared, H, I).items():
            weight = nn.Parameter(torch.empty(size, dtype=torch.bfloat16))
            nn.init.normal_(weight, std=W_SCALE)
            self.register_parameter(name, weight)

    def forward(self, x, expert_ids, expert_weights):
        """(T, H) bfloat16 of x (T, H) bfloat16, (T, top_k) int64 and (T, top_k) bfloat16."""
        return mixture(x, expert_ids, expert_weights, dict(self.named_parameters()))


def get_inputs():
    """Inputs of the default size."""
    x = torch.randn(T, H).bfloat16()
    return [x, *routing(T, E, top_k, torch.Generator(), "cpu")]


def get_init_inputs():
    """Arguments of the constructor."""
    return [T, E, top_k, n_shared, H, I]


def sizes(E, n_shared, H, I):  # noqa: E741
    """The state dict's tensors."""
    return {
        "w1_routed": (E, 2 * I, H),
        "w2_routed": (E, H, I),
        "w1_shared": (n_shared, 2 * I, H),
        "w2_shared": (n_shared, H, I),
    }


def expert(x, w1, w2):
    """One expert on float32 rows."""
    gate, up = (x @ w1.float().T).chunk(2, dim=-1)
    return (nn.functional.silu(gate) * up) @ w2.float().T


def mixture(x, expert_ids, expert_weights, weights):
    """The result, expert by expert: in float32 there is one expert and one sum at a time."""
    wide = x.float()
    total = torch.zeros_like(wide)
    for w1, w2 in zip(weights["w1_shared"], weights["w2_shared"], strict=True):
        total += expert(wide, w1, w2)
    for e in range(len(weights["w1_routed"])):
        tokens, places = (expert_ids == e).nonzero(as_tuple=True)
        if len(tokens):
            found = expert(wide[tokens], weights["w1_routed"][e], weights["w2_routed"][e])
            total.index_add_(0, tokens, expert_weights[tokens, places].float()[:, None] * found)
    return total.bfloat16()


def routing(T, E, top_k, rng, device):
    """Ids of the experts of each token and their weights: some experts are asked for more often."""
    logits = torch.randn(T, E, device=device, generator=rng)
    logits += SKEW * torch.randn(E, device=device, generator=rng)
    chosen = logits.topk(top_k, dim=-1)
    return chosen.indices, chosen.values.softmax(dim=-1).bfloat16()


def make_inputs(shape, seed, device="cpu"):
    """One call on normal tokens with skewed routing."""
    rng = torch.Generator(device=device).manual_seed(seed)
    x = torch.empty(shape["T"], shape["H"], dtype=torch.bfloat16, device=device)
    x.normal_(generator=rng)
    ids, weights = routing(shape["T"], shape["E"], shape["top_k"], rng, device)
    init = [shape[name] for name in ("T", "E", "top_k", "n_shared", "H", "I")]
    call = {"x": x, "expert_ids": ids, "expert_weights": weights}
    return {"params": {"init": init}, "calls": [call]}


def make_weights(shape, seed, device="cpu"):
    """The state dict, drawn where it stays: at full size nothing of it fits twice everywhere.

    The stream is not that of the inputs, which would repeat in the weights.
    """
    rng = torch.Generator(device=device).manual_seed(seed ^ 0x5EED)
    found = {}
    for name, size in sizes(shape["E"], shape["n_shared"], shape["H"], shape["I"]).items():
        found[name] = torch.empty(size, dtype=torch.bfloat16, device=device)
        found[name].normal_(0, W_SCALE, generator=rng)
    return found


def reference(params, calls):
    """The outputs of each call."""
    return [
        {"y": mixture(call["x"], call["expert_ids"], call["expert_weights"], params["weights"])}
        for call in calls
    ]
