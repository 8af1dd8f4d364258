"""One decoding step of a small Kimi-Linear: [KDA, KDA, KDA, MLA], a mixture of experts after each.

Batch 1, bfloat16 activations at the interface, 4-bit weights: of a matrix (K, N) there are ``w_q``
(K/2, N) uint8, an even row in the low nibble and the odd row after it in the high one, and
``scales`` and ``zeros`` (K/128, N) bfloat16, so that w = (q - zero) * scale for each group of 128
rows. Experts are stacked on a leading axis. Everything between input and output is float32 here.

    h = h + attention(rms_norm(h, attn_norm));  h = h + experts(rms_norm(h, moe_norm))

The state is a list of one dict a block, and a step returns the next one:

- KDA  ``S`` (heads, d_k, d_v) float32; ``cq``, ``ck``, ``cv`` (heads * d, 3) bfloat16: the last
  three projections, oldest first, that the causal convolution of 4 taps still sees.
- MLA  ``c_kv`` (ctx, kv_lora) and ``k_rope`` (ctx, qk_rope) bfloat16, one row a past token, keys
  already rotated; the new token stands at position ctx, and its rows are appended.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

EPS = 1e-6
KDA, MLA = ("S", "cq", "ck", "cv"), ("c_kv", "k_rope")  # leaves of a block's state


@dataclass(frozen=True)
class Config:
    """Sizes; the defaults are those of the shapes that are timed."""

    hidden: int = 2304
    kda_heads: int = 32
    kda_head_dim: int = 128
    short_conv: int = 4
    mla_heads: int = 32
    kv_lora: int = 512
    qk_nope: int = 128
    qk_rope: int = 64
    v_head: int = 128
    rope_theta: float = 1e4
    n_experts: int = 64
    n_active: int = 8
    n_shared: int = 1
    moe_inter: int = 1024
    routed_scaling: float = 2.446
    group: int = 128
    pattern: tuple = ("kda", "kda", "kda", "mla")
    dtype: torch.dtype = torch.bfloat16


def build_config(shape):
    """The config of a shape: its dims, where they are fields, over the defaults."""
    known = [name for name in _dims(shape) if name in Config.__dataclass_fields__]
    return Config(**{name: shape[name] for name in known})


def _dims(shape):
    """Names of a shape that are sizes; its ``dtype`` is a word."""
    return [name for name in shape if name != "dtype"]


class Model(nn.Module):
    """What a submission replaces."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.blocks = nn.ModuleList(_modules(names) for names in _by_block(cfg))

    @torch.no_grad()
    def step(self, hidden, state):
        """hidden (1, hidden) and the state of all blocks, to those after one token."""
        return step(dict(self.named_buffers()), self.cfg, hidden, state)


def _by_block(cfg):
    """The names below ``blocks.{i}.`` with shape and dtype, block by block."""
    blocks = [{} for _ in cfg.pattern]
    for name, what in layout(cfg).items():
        _, number, rest = name.split(".", 2)
        blocks[int(number)][rest] = what
    return blocks


def _modules(names):
    """Modules nested as the dotted names say, each leaf a buffer."""
    root = nn.Module()
    for dotted, (shape, dtype) in names.items():
        *path, leaf = dotted.split(".")
        at = root
        for part in path:
            if not hasattr(at, part):
                at.add_module(part, nn.Module())
            at = getattr(at, part)
        at.register_buffer(leaf, torch.zeros(shape, dtype=dtype))
    return root


def layout(cfg):
    """The state dict: name -> (shape, dtype)."""
    found = {}
    for number, kind in enumerate(cfg.pattern):
        base = f"blocks.{number}."
        found[base + "attn_norm"] = found[base + "moe_norm"] = ((cfg.hidden,), cfg.dtype)
        for name, (k, n) in _projections(cfg, kind).items():
            found |= _packed(cfg, f"{base}attn.{name}", (), k, n)
        if kind == "kda":
            wide = cfg.kda_heads * cfg.kda_head_dim
            found[base + "attn.beta_proj.weight"] = ((cfg.kda_heads, cfg.hidden), cfg.dtype)
            found[base + "attn.conv_w"] = ((3, wide, cfg.short_conv), cfg.dtype)
        found[base + "moe.router.weight"] = ((cfg.n_experts, cfg.hidden), cfg.dtype)
        for part, stack, inter in _experts(cfg):
            for name in ("gate", "up"):
                found |= _packed(cfg, f"{base}moe.{part}{name}", stack, cfg.hidden, inter)
            found |= _packed(cfg, f"{base}moe.{part}down", stack, inter, cfg.hidden)
    return found


def _projections(cfg, kind):
    """Quantised matrices (K, N) of an attention."""
    if kind == "kda":
        wide = cfg.kda_heads * cfg.kda_head_dim
        into = {f"{name}_proj": (cfg.hidden, wide) for name in "qkvg"}
        return {**into, "o_proj": (wide, cfg.hidden)}
    return {
        "q_proj": (cfg.hidden, cfg.mla_heads * (cfg.qk_nope + cfg.qk_rope)),
        "kv_a": (cfg.hidden, cfg.kv_lora + cfg.qk_rope),
        "kv_b": (cfg.kv_lora, cfg.mla_heads * (cfg.qk_nope + cfg.v_head)),
        "o_proj": (cfg.mla_heads * cfg.v_head, cfg.hidden),
    }


def _experts(cfg):
    """Prefix, leading axis and inner size of the routed and of the shared experts."""
    return ("", (cfg.n_experts,), cfg.moe_inter), ("s_", (), cfg.n_shared * cfg.moe_inter)


def _packed(cfg, name, stack, k, n):
    groups = ((*stack, k // cfg.group, n), cfg.dtype)
    return {
        f"{name}.w_q": ((*stack, k // 2, n), torch.uint8),
        f"{name}.scales": groups,
        f"{name}.zeros": groups,
    }


def unpacked(weights, name, which=None):
    """A matrix (or, with ``which``, a stack of some) in float32."""
    packed, scales, zeros = (
        weights[f"{name}.{part}"] if which is None else weights[f"{name}.{part}"][which]
        for part in ("w_q", "scales", "zeros")
    )
    *stack, half, n = packed.shape
    q = torch.stack((packed & 15, packed >> 4), dim=-2).reshape(*stack, 2 * half, n)
    q = q.reshape(*stack, scales.shape[-2], -1, n).float()
    w = (q - zeros.float().unsqueeze(-2)) * scales.float().unsqueeze(-2)
    return w.reshape(*stack, 2 * half, n)


def rms_norm(x, weight):
    """x / rms(x) * weight."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight.float()


def step(weights, cfg, hidden, state):
    """One token through all blocks: the new hidden and the new state."""
    h, after = hidden.float(), []
    for number, (kind, held) in enumerate(zip(cfg.pattern, state, strict=True)):
        base = f"blocks.{number}."
        attention = kda if kind == "kda" else mla
        out, new = attention(
            weights, f"{base}attn.", cfg, rms_norm(h, weights[base + "attn_norm"]), held
        )
        h = h + out
        h = h + experts(weights, f"{base}moe.", cfg, rms_norm(h, weights[base + "moe_norm"]))
        after.append(new)
    return h.to(cfg.dtype), after


def kda(weights, base, cfg, x, state):
    """Gated delta rule with a decay for each key channel; x (1, hidden)."""
    heads, d = cfg.kda_heads, cfg.kda_head_dim
    new = {}
    mixed = []
    for n, name in enumerate("qkv"):
        now = (x @ unpacked(weights, f"{base}{name}_proj")).T
        seen = torch.cat((state[f"c{name}"].float(), now), dim=1)
        convolved = (seen * weights[base + "conv_w"][n].float()).sum(1)
        mixed.append(F.silu(convolved).reshape(heads, d))
        new[f"c{name}"] = seen[:, 1:].to(cfg.dtype)
    q, k, v = mixed
    g = -F.softplus(x @ unpacked(weights, base + "g_proj")).reshape(heads, d)
    beta = torch.sigmoid(x @ weights[base + "beta_proj.weight"].float().T).reshape(heads, 1)
    S = state["S"].float() * g.exp().unsqueeze(-1)
    error = v - torch.einsum("hkv,hk->hv", S, k)
    S = S + torch.einsum("hk,hv->hkv", beta * k, error)
    out = torch.einsum("hkv,hk->hv", S, q * d**-0.5).reshape(1, -1)
    return out @ unpacked(weights, base + "o_proj"), {"S": S, **new}


def mla(weights, base, cfg, x, state):
    """Latent attention of one query over all rows of the cache and its own; x (1, hidden)."""
    heads, nope, rope = cfg.mla_heads, cfg.qk_nope, cfg.qk_rope
    at = state["c_kv"].shape[0]
    q = (x @ unpacked(weights, base + "q_proj")).reshape(heads, nope + rope)
    row = x @ unpacked(weights, base + "kv_a")
    q_rope = rotated(q[:, nope:], at, cfg.rope_theta)
    k_new = rotated(row[:, cfg.kv_lora :], at, cfg.rope_theta)
    c_kv = torch.cat((state["c_kv"], row[:, : cfg.kv_lora].to(cfg.dtype)))
    k_rope = torch.cat((state["k_rope"], k_new.to(cfg.dtype)))
    kv_b = unpacked(weights, base + "kv_b").reshape(cfg.kv_lora, heads, nope + cfg.v_head)
    # (c W_k) . q = c . (W_k q): so no key of any past token is ever made.
    q_latent = torch.einsum("chn,hn->hc", kv_b[..., :nope], q[:, :nope])
    scores = q_latent @ c_kv.float().T + q_rope @ k_rope.float().T
    p = torch.softmax(scores * (nope + rope) ** -0.5, dim=-1)
    out = torch.einsum("hc,chv->hv", p @ c_kv.float(), kv_b[..., nope:]).reshape(1, -1)
    return out @ unpacked(weights, base + "o_proj"), {"c_kv": c_kv, "k_rope": k_rope}


def rotated(x, position, theta):
    """Rotary embedding of pairs (2i, 2i + 1) of the last axis."""
    d = x.shape[-1]
    powers = torch.arange(0, d, 2, device=x.device, dtype=torch.float64) / d
    angle = position * theta**-powers
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def experts(weights, base, cfg, x):
    """The shared expert, and the best ``n_active`` by their softmax, renormalised and scaled."""
    p = torch.softmax(x @ weights[base + "router.weight"].float().T, dim=-1).reshape(-1)
    chosen = p.sort(descending=True, stable=True).indices[: cfg.n_active]
    share = p[chosen] / p[chosen].sum() * cfg.routed_scaling
    gate, up, down = (unpacked(weights, base + name, chosen) for name in ("gate", "up", "down"))
    inner = F.silu(x @ gate) * (x @ up)  # (n_active, 1, inter)
    routed = (share.reshape(-1, 1, 1) * (inner @ down)).sum(0)
    gate, up, down = (unpacked(weights, base + name) for name in ("s_gate", "s_up", "s_down"))
    return routed + (F.silu(x @ gate) * (x @ up)) @ down


def init_token(cfg, seed, device="cpu"):
    """A hidden, 0.25 N."""
    rng = torch.Generator(device=device).manual_seed(seed + 1)
    return (0.25 * torch.randn(1, cfg.hidden, device=device, generator=rng)).to(cfg.dtype)


def init_state(cfg, ctx, seed, device="cpu"):
    """A state after ``ctx`` tokens: S 0.05 N, everything else 0.1 N."""
    rng = torch.Generator(device=device).manual_seed(seed)

    def normal(scale, *shape):
        return scale * torch.randn(*shape, device=device, generator=rng)

    wide, taps = cfg.kda_heads * cfg.kda_head_dim, cfg.short_conv - 1
    state = []
    for kind in cfg.pattern:
        if kind == "kda":
            held = {"S": normal(0.05, cfg.kda_heads, cfg.kda_head_dim, cfg.kda_head_dim)}
            held |= {name: normal(0.1, wide, taps).to(cfg.dtype) for name in ("cq", "ck", "cv")}
        else:
            held = {"c_kv": normal(0.1, ctx, cfg.kv_lora).to(cfg.dtype)}
            held["k_rope"] = normal(0.1, ctx, cfg.qk_rope).to(cfg.dtype)
        state.append(held)
    return state


def make_inputs(shape, seed, device="cpu"):
    """One call: one step from a state of ``ctx`` tokens. The state of a KDA block comes with the
    call, its leaves named ``0.S`` etc.; latent caches are dealt with the weights."""
    cfg = build_config(shape)
    call = {"hidden": init_token(cfg, seed, device)}
    for number, held in enumerate(init_state(cfg, 0, seed, device)):
        call |= {f"{number}.{name}": held[name] for name in KDA if name in held}
    dims = {name: shape[name] for name in _dims(shape)}
    return {"params": {"dims": dims, "follows": False}, "calls": [call]}


GAINS = {
    "kda.o_proj": 20.0,
    "mla.q_proj": 20.0,
    "mla.kv_a": 0.1,
    "mla.o_proj": 15.0,
    "down": 0.08,
    "router": 4.0,
    "conv_q": 1.0,
    "conv_k": 0.4,
    "conv_v": 1.5,
}
"""Standard deviations of weights, times the root of the fan-in for matrices (1 where not named:
0.02 for an input of 2304). With all of them alike the attention of every block would vanish beside
the rest: a flat softmax takes the mean of thousands of random rows, which is nothing. So scores
spread over about 2, a head sees a few dozen of its rows, and what attention adds is as large as
what it is added to. The router is steep, so that where rounding swaps the last expert chosen for
the next, as happens in about one call of ten, little of the output goes with it."""


def make_weights(shape, seed, device="cpu"):
    """The state dict of a shape, and its latent caches: ``state.3.c_kv`` and so on."""
    cfg = build_config(shape)
    rng = torch.Generator(device=device).manual_seed(seed)
    found = {}
    for name, (size, dtype) in layout(cfg).items():
        if name.endswith(".w_q"):
            found |= _quantised(cfg, name.removesuffix(".w_q"), size, _gain(cfg, name), rng)
        elif not name.endswith((".scales", ".zeros")):
            found[name] = _plain(cfg, name, size, rng).to(dtype)
    for number, kind in enumerate(cfg.pattern):
        if kind == "mla":
            for name, width in (("c_kv", cfg.kv_lora), ("k_rope", cfg.qk_rope)):
                drawn = 0.1 * torch.randn(shape["ctx"], width, device=device, generator=rng)
                found[f"state.{number}.{name}"] = drawn.to(cfg.dtype)
    return found


def _gain(cfg, name):
    _, number, _, matrix, *_ = name.split(".")
    return GAINS.get(
        f"{cfg.pattern[int(number)]}.{matrix}", GAINS.get(matrix.removeprefix("s_"), 1.0)
    )


def _plain(cfg, name, size, rng):
    normal = torch.randn(size, device=rng.device, generator=rng)
    if name.endswith("_norm"):
        return 1 + 0.1 * normal
    if name.endswith("conv_w"):
        scale = torch.tensor([GAINS[f"conv_{c}"] for c in "qkv"], device=rng.device)
        return normal * scale.reshape(3, 1, 1) / math.sqrt(cfg.short_conv)
    return normal * (GAINS["router"] if "router" in name else 1.0) / math.sqrt(cfg.hidden)


def _quantised(cfg, name, size, gain, rng):
    """Normal weights, each group of rows over the 16 levels between its least and its largest."""
    *stack, half, n = size
    groups = 2 * half // cfg.group
    flat = [
        _levels((groups, cfg.group, n), gain / math.sqrt(2 * half), rng)
        for _ in range(math.prod(stack))
    ]
    q, scales, zeros = (torch.stack(parts) for parts in zip(*flat, strict=True))
    q = q.reshape(*stack, half, 2, n)
    shape = (*stack, groups, n)
    return {
        f"{name}.w_q": q[..., 0, :] | (q[..., 1, :] << 4),
        f"{name}.scales": scales.reshape(shape).to(cfg.dtype),
        f"{name}.zeros": zeros.reshape(shape).to(cfg.dtype),
    }


def _levels(size, scale, rng):
    """Of one matrix (groups, rows, N): levels 0..15, and the scale and zero of each group."""
    w = scale * torch.randn(size, device=rng.device, generator=rng)
    low, high = w.amin(1, keepdim=True), w.amax(1, keepdim=True)
    width = ((high - low) / 15).to(torch.bfloat16).float()
    zero = (-low / width).round()
    q = (w / width + zero).round().clamp(0, 15).to(torch.uint8)
    return q, width.squeeze(1), zero.squeeze(1)


def reference(params, calls):
    """The outputs of each call: hidden, and the leaves of the state that are compared. Where a call
    ``follows`` the one before it, it brings a hidden alone and goes on from that one's state."""
    cfg, weights = build_config(params["dims"]), params["weights"]
    found, after = [], None
    for call in calls:
        state = after if params["follows"] and after else nested(call, weights, cfg)
        hidden, after = step(weights, cfg, call["hidden"], state)
        found.append({"hidden": hidden, **compared(after)})
    return found


def nested(call, weights, cfg):
    """The state that a call begins from, as a step takes it."""
    return [
        {name: call[f"{n}.{name}"] for name in KDA}
        if kind == "kda"
        else {name: weights[f"state.{n}.{name}"] for name in MLA}
        for n, kind in enumerate(cfg.pattern)
    ]


def compared(state):
    """The leaves of a state by their paths; of the caches, which grow, the new row."""
    return {
        f"{n}.{name}": value[-1:].contiguous() if name in MLA else value
        for n, held in enumerate(state)
        for name, value in held.items()
    }
