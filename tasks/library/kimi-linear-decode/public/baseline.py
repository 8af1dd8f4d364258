"""The step in plain PyTorch, as somebody who knows PyTorch would write it: what speed-ups are over.

Weights stay four bits wide in memory, which is why they are quantised, and are unpacked when they
are used; no copy in bfloat16 is kept, which would be four times their bytes. A group's scale is
applied to its partial product, not to its weights. Once, when weights are loaded, what takes the
same vector is put side by side (q, k, v and g; gate and up), and the shared expert behind the
routed ones, so that one gather and one batched product do nine experts. Products are in bfloat16.

There is no ``torch.compile`` and no CUDA graph: a speed-up over them would be one over a version of
a compiler, and over its warm-up at each length of the cache.
"""

import torch
from torch import nn
from torch.nn import functional as F

EPS = 1e-6
PARTS = ("w_q", "scales", "zeros")


class Model(nn.Module):
    """Buffers of the state dict, and beside them the same weights in the order of their use."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        for name, (shape, dtype) in layout(cfg).items():
            *path, leaf = name.split(".")
            at = self
            for part in path:
                if not hasattr(at, part):
                    at.add_module(part, nn.Module())
                at = getattr(at, part)
            at.register_buffer(leaf, torch.zeros(shape, dtype=dtype))
        self.register_load_state_dict_post_hook(lambda model, _: model.arrange())

    def arrange(self):
        """Put side by side what is used together; four bits stay four bits."""
        held = dict(self.named_buffers())
        self.layers = [layer(held, f"blocks.{n}.", k) for n, k in enumerate(self.cfg.pattern)]
        rope = self.cfg.qk_rope
        powers = torch.arange(
            0, rope, 2, dtype=torch.float64, device=held["blocks.0.attn_norm"].device
        )
        self.rates = self.cfg.rope_theta ** -(powers / rope)

    @torch.no_grad()
    def step(self, hidden, state):
        """hidden (1, hidden) and the state of all blocks, to those after one token."""
        h, after = hidden.float(), []
        for kind, weights, held in zip(self.cfg.pattern, self.layers, state, strict=True):
            x = norm(h, weights["attn_norm"])
            out, new = (self.kda if kind == "kda" else self.mla)(weights, x, held)
            h = h + out
            h = h + self.experts(weights, norm(h, weights["moe_norm"]))
            after.append(new)
        return h.to(self.cfg.dtype), after

    def kda(self, weights, x, state):
        """Gated delta rule; all heads at once."""
        heads, d = self.cfg.kda_heads, self.cfg.kda_head_dim
        projected = product(x, weights["in"]).view(4, heads * d)
        windows = torch.stack([state[name] for name in ("cq", "ck", "cv")])
        seen = torch.cat((windows, projected[:3, :, None].to(windows.dtype)), dim=2)
        mixed = torch.cat((windows.float(), projected[:3, :, None]), dim=2)
        q, k, v = F.silu((mixed * weights["conv"]).sum(2)).view(3, heads, d)
        decay = torch.sigmoid(-projected[3]).view(heads, d, 1)  # exp(-softplus(g))
        beta = torch.sigmoid(x.to(weights["beta"].dtype) @ weights["beta"].T).float().view(heads, 1)
        S = state["S"] * decay
        error = (v - torch.bmm(k[:, None], S)[:, 0]) * beta
        S.baddbmm_(k[:, :, None], error[:, None])
        out = torch.bmm(q[:, None], S).view(1, -1) * d**-0.5
        cq, ck, cv = seen[:, :, 1:].contiguous()
        return product(out, weights["out"]), {"S": S, "cq": cq, "ck": ck, "cv": cv}

    def mla(self, weights, x, state):
        """Latent attention; keys and values of past tokens are never made."""
        cfg = self.cfg
        heads, nope, rope = cfg.mla_heads, cfg.qk_nope, cfg.qk_rope
        at = len(state["c_kv"])
        projected = product(x, weights["in"])
        q = projected[: heads * (nope + rope)].view(heads, nope + rope)
        row = projected[heads * (nope + rope) :]
        turned = self.turned(torch.cat((q[:, nope:], row[None, cfg.kv_lora :])), at)
        c_kv = torch.cat((state["c_kv"], row[None, : cfg.kv_lora].to(cfg.dtype)))
        k_rope = torch.cat((state["k_rope"], turned[-1:].to(cfg.dtype)))
        kv_b = unpacked(weights["kv_b"]).view(cfg.kv_lora, heads, nope + cfg.v_head)
        q_latent = torch.einsum("chn,hn->hc", kv_b[..., :nope], q[:, :nope].to(cfg.dtype))
        scores = q_latent @ c_kv.T + turned[:-1].to(cfg.dtype) @ k_rope.T
        p = torch.softmax(scores.float() * (nope + rope) ** -0.5, dim=-1).to(cfg.dtype)
        out = torch.einsum("hc,chv->hv", p @ c_kv, kv_b[..., nope:])
        return product(out.reshape(1, -1), weights["out"]), {"c_kv": c_kv, "k_rope": k_rope}

    def turned(self, x, position):
        """Rotary embedding of pairs (2i, 2i + 1)."""
        angle = position * self.rates
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        even, odd = x[:, ::2], x[:, 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=2).flatten(1)

    def experts(self, weights, x):
        """The chosen experts and the shared one, in one gather and two batched products."""
        cfg = self.cfg
        logits = x @ weights["router"].T
        best, chosen = logits[0].topk(cfg.n_active)
        share = torch.softmax(best, 0) * cfg.routed_scaling
        chosen = torch.cat((chosen, weights["shared"]))
        share = torch.cat((share, weights["one"]))
        gate, up = product(x, [part[chosen] for part in weights["gate_up"]]).chunk(2, dim=1)
        inner = F.silu(gate) * up * share[:, None]  # (n_active + 1, inter)
        return product(inner[:, None], [part[chosen] for part in weights["down"]]).sum(
            0, keepdim=True
        )


def norm(x, weight):
    """x / rms(x) * weight."""
    return F.rms_norm(x, x.shape[-1:], weight, EPS)


def product(x, packed):
    """x (..., 1, K) or (1, K) times a matrix, or each its own of a stack: (..., N) float32."""
    q, scales, zeros = packed
    *stack, half, n = q.shape
    groups = scales.shape[-2]
    x = x.to(scales.dtype).expand(*stack, 1, 2 * half).reshape(-1, 1, 2 * half // groups)
    q = q.reshape(-1, half // groups, n)  # a group a matrix
    zeros = zeros.reshape(-1, 1, n)
    even = torch.bmm(x[..., ::2], (q & 15) - zeros)  # whole numbers: exact in bfloat16
    odd = torch.bmm(x[..., 1::2], (q >> 4) - zeros)
    sums = (even.float() + odd).view(*stack, groups, n)
    return (sums * scales).sum(-2)


def unpacked(packed):
    """A matrix in bfloat16."""
    q, scales, zeros = packed
    half, n = q.shape
    q = torch.stack((q & 15, q >> 4), dim=1).view(len(scales), -1, n).to(scales.dtype)
    return ((q - zeros[:, None]) * scales[:, None]).view(2 * half, n)


def layer(held, base, kind):
    """A block's weights, side by side where they take the same vector."""

    def beside(names):
        return [torch.cat([held[f"{base}{n}.{part}"] for n in names], dim=-1) for part in PARTS]

    def behind(routed, shared):
        return [torch.cat((one, two[None])) for one, two in zip(routed, shared, strict=True)]

    found = {name: held[base + name].float() for name in ("attn_norm", "moe_norm")}
    if kind == "kda":
        found["in"] = beside([f"attn.{name}_proj" for name in "qkvg"])
        found["beta"] = held[base + "attn.beta_proj.weight"]
        found["conv"] = held[base + "attn.conv_w"].float()
    else:
        found["in"] = beside(["attn.q_proj", "attn.kv_a"])
        found["kv_b"] = beside(["attn.kv_b"])
    found["out"] = beside(["attn.o_proj"])
    found["router"] = held[base + "moe.router.weight"].float()
    found["gate_up"] = behind(beside(["moe.gate", "moe.up"]), beside(["moe.s_gate", "moe.s_up"]))
    found["down"] = behind(beside(["moe.down"]), beside(["moe.s_down"]))
    device = found["attn_norm"].device
    found["shared"] = torch.tensor([len(found["router"])], device=device)
    found["one"] = torch.ones(1, device=device)
    return found


def layout(cfg):
    """The state dict: name -> (shape, dtype)."""
    found = {}

    def matrix(name, k, n, *stack):
        found[f"{name}.w_q"] = ((*stack, k // 2, n), torch.uint8)
        found[f"{name}.scales"] = found[f"{name}.zeros"] = ((*stack, k // cfg.group, n), cfg.dtype)

    wide = cfg.kda_heads * cfg.kda_head_dim
    for number, kind in enumerate(cfg.pattern):
        base = f"blocks.{number}."
        found[base + "attn_norm"] = found[base + "moe_norm"] = ((cfg.hidden,), cfg.dtype)
        if kind == "kda":
            for name in "qkvg":
                matrix(f"{base}attn.{name}_proj", cfg.hidden, wide)
            matrix(f"{base}attn.o_proj", wide, cfg.hidden)
            found[base + "attn.beta_proj.weight"] = ((cfg.kda_heads, cfg.hidden), cfg.dtype)
            found[base + "attn.conv_w"] = ((3, wide, cfg.short_conv), cfg.dtype)
        else:
            heads = cfg.mla_heads
            matrix(f"{base}attn.q_proj", cfg.hidden, heads * (cfg.qk_nope + cfg.qk_rope))
            matrix(f"{base}attn.kv_a", cfg.hidden, cfg.kv_lora + cfg.qk_rope)
            matrix(f"{base}attn.kv_b", cfg.kv_lora, heads * (cfg.qk_nope + cfg.v_head))
            matrix(f"{base}attn.o_proj", heads * cfg.v_head, cfg.hidden)
        found[base + "moe.router.weight"] = ((cfg.n_experts, cfg.hidden), cfg.dtype)
        for prefix, stack in (("", (cfg.n_experts,)), ("s_", ())):
            inter = cfg.moe_inter if stack else cfg.n_shared * cfg.moe_inter
            matrix(f"{base}moe.{prefix}gate", cfg.hidden, inter, *stack)
            matrix(f"{base}moe.{prefix}up", cfg.hidden, inter, *stack)
            matrix(f"{base}moe.{prefix}down", inter, cfg.hidden, *stack)
    return found
