"""A foraging world on an 11x11 grid, played greedily by a three-layer MinGRU policy.

The module interface is that of the public deck: ``Model()``, ``run(num_envs, horizon, seed,
model)``, and beside them ``policy_forward`` and ``env_step``, the two halves of one step.

World. Every environment has an agent and a food at cells (x, y), each 0 to 10. A step moves the
agent by one cell (actions 0/1: y - 1 / y + 1; 2/3: x - 1 / x + 1; at the border it stays), and pays
1 where it then stands on the food. Each environment has a generator, 63 bits wide. In a step in
which *any* environment is paid, those of *all* advance twice, by r <- (a r + 1) mod 2^63; the paid
environments take their next food from the two values: x = first mod 11, y = second mod 11.

Policy. obs = (dx / 11, dy / 11, x / 10, y / 10), where dx, dy point from the agent to the food. A
linear encoder, three MinGRU layers with a state each, a linear head of four logits (and one of a
value that nobody uses here); the action is the index of the largest logit, the lowest in a tie.
"""

from types import SimpleNamespace

import torch
from torch import nn

HIDDEN, LAYERS, GRID, ACTIONS = 256, 3, 11, 4
LCG, MASK = 6364136223846793005, (1 << 63) - 1
SEEDS = 1 << 31  # 10007 times any of them, plus an index, is below 2^63
CHUNK = 16384  # environments whose activations exist at a time
num_envs, horizon = 4096, 32


class Model(nn.Module):
    """The weights of the policy."""

    def __init__(self):
        super().__init__()
        for name, shape in SHAPES.items():
            self.register_parameter(name, nn.Parameter(0.05 * torch.randn(shape)))

    def forward(self, obs, state):
        """Logits (N, 4), value (N,), next state (3, N, 256)."""
        return policy_forward(obs, state, self)


SHAPES = {
    "w_enc": (HIDDEN, 4),
    "b_enc": (HIDDEN,),
    "w_gru": (LAYERS, 3 * HIDDEN, HIDDEN),  # rows of a layer: zh, zg, zp
    "w_a": (ACTIONS, HIDDEN),
    "b_a": (ACTIONS,),
    "w_v": (1, HIDDEN),
    "b_v": (1,),
}


def get_inputs():
    """Arguments of ``run``, but for the model."""
    return [num_envs, horizon, 0]


def get_init_inputs():
    """Arguments of the constructor."""
    return []


def policy_forward(obs, state, model):
    """One step of the policy: obs (N, 4), state (3, N, 256) to logits, value, next state."""
    h = obs @ model.w_enc.T + model.b_enc
    after = []
    for weight, s in zip(model.w_gru, state, strict=True):
        zh, zg, zp = (h @ weight.T).chunk(3, dim=-1)
        out = s + torch.sigmoid(zg) * (torch.tanh(zh) - s)
        through = torch.sigmoid(zp)
        h = through * out + (1 - through) * h
        after.append(out)
    value = (h @ model.w_v.T + model.b_v).squeeze(-1)
    return h @ model.w_a.T + model.b_a, value, torch.stack(after)


def observe(agent, food, dtype=torch.float32):
    """What the policy sees, (N, 4)."""
    return torch.cat([(food - agent).to(dtype) / GRID, agent.to(dtype) / (GRID - 1)], dim=1)


def env_step(agent, food, rng, action):
    """One step of the world: agent, food (N, 2), rng (N,), all int64; and the reward."""
    moves = torch.tensor([[0, -1], [0, 1], [-1, 0], [1, 0]], device=agent.device)
    agent = (agent + moves[action]).clamp(0, GRID - 1)
    hit = (agent == food).all(dim=1)
    first = (rng * LCG + 1) & MASK  # int64 wraps, so the low 63 bits are exact
    second = (first * LCG + 1) & MASK
    fresh = torch.stack([first % GRID, second % GRID], dim=1)
    food = torch.where(hit[:, None], fresh, food)
    rng = torch.where(hit.any(), second, rng)
    return agent, food, rng, hit.to(torch.int64)


def reset(num_envs, seed, device):
    """Agents, foods and generators at the start; drawn on the host whatever the device."""
    drawn = torch.Generator().manual_seed(seed)
    agent = torch.randint(0, GRID, (num_envs, 2), generator=drawn)
    food = torch.randint(0, GRID, (num_envs, 2), generator=drawn)
    rng = torch.arange(num_envs) + 10007 * seed
    return agent.to(device), food.to(device), rng.to(device)


def rollout(num_envs, horizon, seed, model):
    """Total rewards (N,), last agents (N, 2), logits of the last step, least gap of the top two."""
    device, dtype = model.w_enc.device, model.w_enc.dtype
    agent, food, rng = reset(num_envs, seed, device)
    state = torch.zeros(LAYERS, num_envs, HIDDEN, device=device, dtype=dtype)
    rewards = torch.zeros(num_envs, device=device, dtype=torch.int64)
    gap = torch.full((), torch.inf, device=device, dtype=dtype)
    for _ in range(horizon):
        obs, parts = observe(agent, food, dtype), []
        for part in torch.arange(num_envs, device=device).split(CHUNK):
            some = slice(int(part[0]), int(part[-1]) + 1)
            logits, _, state[:, some] = policy_forward(obs[some], state[:, some], model)
            parts.append(logits)
        logits = torch.cat(parts)
        top = logits.topk(2, dim=1).values
        gap = torch.minimum(gap, (top[:, 0] - top[:, 1]).min())
        agent, food, rng, reward = env_step(agent, food, rng, logits.argmax(dim=1))
        rewards += reward
    return rewards, agent, logits, gap


@torch.no_grad()
def run(num_envs, horizon, seed, model):
    """What a submission replaces: rewards (N,) and positions (N, 2) int64, last logits (N, 4)."""
    return rollout(num_envs, horizon, seed, model)[:3]


def make_inputs(shape, seed, device="cpu"):
    """One rollout: all that varies is its own seed."""
    drawn = torch.Generator(device=device).manual_seed(seed)
    own = torch.randint(0, SEEDS, (1,), generator=drawn, device=device)
    sizes = {"num_envs": shape["num_envs"], "horizon": shape["horizon"]}
    return {"params": {"init": [], **sizes}, "calls": [{"seed": own}]}


def reference(params, calls):
    """The outputs of each call, computed in float64."""
    weights = {name: value.double() for name, value in params["weights"].items()}
    model = SimpleNamespace(**weights)
    return [
        _one_step(call, model) if "obs" in call else _whole_run(params, call, model)
        for call in calls
    ]


def _whole_run(params, call, model):
    found = rollout(params["num_envs"], params["horizon"], call["seed"].item(), model)
    return {"0": found[0], "1": found[1], "2": found[2].float()}


def _one_step(call, model):
    logits, value, after = policy_forward(call["obs"].double(), call["state"].double(), model)
    return {"0": value.float(), "1": after.float(), "2": logits.float()}


# --- a policy that forages ------------------------------------------------------------------------
# Random weights press an agent against a wall: it never meets its food, and every other choice is
# a near tie that rounding decides. So a few of the hidden units are set, those of a forager, and
# the others stay random, with a smaller say in the logits. The forager walks along x or y towards
# its food; which axis comes first is what three latches remember, one in the state of each layer:
# each opens in some half of the grid and then takes over where the food is, and what the latch
# before says. Whatever the other units add, its first choice stays ahead by far more than rounding.

STEEP = 16.0  # slope of a switch: half a cell from its threshold, a gate is at sigmoid(+-8)
MURMUR = 0.007  # weight of the random units in the logits
ONE, DX, DY, X, Y, LATCH, NEEDS, UNITS = 0, 1, 2, 3, 4, 5, 8, 12
AHEAD = (-0.75, -0.25, 0.25, 0.75)  # so that no two actions are equally good, whatever a latch says


def make_weights(shape, seed, device="cpu"):
    """The state dict of a forager; which units are whose is as random as the rest."""
    rng = torch.Generator(device=device).manual_seed(seed)

    def normal(*size):
        return torch.randn(*size, generator=rng, device=device, dtype=torch.float64)

    def whole(low, high, count):
        return torch.randint(low, high + 1, (count,), generator=rng, device=device).tolist()

    w_enc, b_enc = 0.8 * normal(HIDDEN, 4), 0.5 * normal(HIDDEN)
    w_gru = normal(LAYERS, 3, HIDDEN, HIDDEN) * 1.5 / HIDDEN**0.5
    w_a, b_a = MURMUR * normal(ACTIONS, HIDDEN), 0.01 * normal(ACTIONS)
    _see(w_enc, b_enc)
    w_gru[:, :, :UNITS] *= 0.1
    w_gru[:, 2, :UNITS, ONE] -= STEEP  # these pass a layer unchanged, but for those set now
    for layer in range(LAYERS):
        _remember(w_gru[layer], layer, whole)
    _want(w_gru[-1], w_a, whole)
    w_gru = w_gru.reshape(LAYERS, 3 * HIDDEN, HIDDEN)
    order = torch.randperm(HIDDEN, generator=rng, device=device)
    rows = torch.cat([order, order + HIDDEN, order + 2 * HIDDEN])
    weights = {
        "w_enc": w_enc[order],
        "b_enc": b_enc[order],
        "w_gru": w_gru[:, rows][:, :, order],
        "w_a": w_a[:, order],
        "b_a": b_a,
        "w_v": normal(1, HIDDEN) / HIDDEN**0.5,
        "b_v": normal(1),
    }
    return {name: value.to(torch.float32).contiguous() for name, value in weights.items()}


def _see(w_enc, b_enc):
    """A constant, and what is observed, each in a unit of its own."""
    w_enc[:UNITS], b_enc[:UNITS] = 0, 0
    b_enc[ONE] = 1
    w_enc[[DX, DY, X, Y], [0, 1, 2, 3]] = 1


def _switch(row, cells, threshold):
    """Make a row steep in ``cells`` (of dx, dy, x, y) - ``threshold``, an odd half."""
    scales = torch.tensor([GRID, GRID, GRID - 1, GRID - 1], device=row.device, dtype=row.dtype)
    row[[DX, DY, X, Y]] += STEEP * scales * torch.tensor(cells, device=row.device)
    row[ONE] -= STEEP * threshold


def _remember(w, layer, whole):
    """The latch of a layer: gate by where the agent is, content by where the food is."""
    unit = LATCH + layer
    (a, b), (c, d), (off, side) = whole(1, 2, 2), whole(1, 2, 2), whole(0, 3, 2)
    a, b = (-a if side & 1 else a), (-b if side & 2 else b)
    _switch(w[0, unit], [c, -d if off & 1 else d, 0, 0], 0.5 if off & 2 else -0.5)
    _switch(w[1, unit], [0, 0, a, b], 5 * (a + b) + 0.5)
    w[2, unit, ONE] += 2 * STEEP
    if layer:
        w[0, unit, unit - 1] += 3 * STEEP


def _want(w, w_a, whole):
    """Four units that tell which moves lead to the food, and the logits."""
    towards = ([0, -1, 0, 0], [0, 1, 0, 0], [-1, 0, 0, 0], [1, 0, 0, 0])
    first, *turned = whole(0, 1, 3)
    for action, cells in enumerate(towards):
        unit, is_x = NEEDS + action, action > 1
        _switch(w[0, unit], cells, 0.5)
        w[1, unit, ONE] += STEEP
        w[2, unit, ONE] += 2 * STEEP
        w_a[action, unit] += 2
        w_a[action, LATCH + LAYERS - 1] += 1 if is_x == first else -1
        w_a[action, ONE] += AHEAD[2 * (is_x == first) + (action + turned[is_x]) % 2]
