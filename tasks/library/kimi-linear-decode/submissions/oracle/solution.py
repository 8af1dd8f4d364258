"""A step of Kimi-Linear as one cooperative launch (`decode.cu`), weights read as they are: 4 bits.

It needs a GPU of Hopper's or the data centre Blackwell's shared memory, and there is nothing to
run without one: on a CPU this cannot be rehearsed, `naive` can.

What bounds it, on an H200 (to be measured): a step reads 240 to 257 MB, 57 to 61 us at 4.2 TB/s, and
its blocks meet 22 times; most of the waiting is filled by the next phase's first pieces, which are
asked for before it. What is not filled: gate and up cannot begin before the router has chosen.
Expected: 90 to 120 us a step at 2048, some 10 us more at 16384.

Results of a step go into one of a few sets of tensors, always one that holds none of its inputs; so
a caller who wants to keep a state over the step after the next copies it. The new row of the latent
caches is written in place where there is room behind the old ones.
"""

import functools
import math
import pathlib

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

KDA, MLA = ("S", "cq", "ck", "cv"), ("c_kv", "k_rope")
PARTS = ("w_q", "scales", "zeros")
EXPERTS = ("gate", "up", "down", "s_gate", "s_up", "s_down")
SPARE = 256  # rows behind a cache that had no room
STATE = 12  # addresses of a layer's state, before and after
BINDING = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
extern "C" const char *blocks_and_scratch(const long long *, int *, long long *);
extern "C" int prepare_model(int, const long long *, const unsigned long long *, float, float *,
                             const double *);
extern "C" const char *decode(int, const unsigned long long *, int, void *);
long long scratch(const std::vector<long long> &sizes) {
    int blocks;
    long long floats;
    const char *told = blocks_and_scratch(sizes.data(), &blocks, &floats);
    TORCH_CHECK(!*told, "not for this kernel: ", told);
    return floats;
}
int prepare(int number, const std::vector<long long> &sizes,
            const std::vector<unsigned long long> &layers, double scaling,
            unsigned long long scratch, unsigned long long rates) {
    return prepare_model(number, sizes.data(), layers.data(), (float)scaling, (float *)scratch,
                         (const double *)rates);
}
void step(int number, const std::vector<unsigned long long> &at, int ctx) {
    const char *told = decode(number, at.data(), ctx, c10::cuda::getCurrentCUDAStream().stream());
    TORCH_CHECK(!*told, "the launch failed: ", told);
}
"""


@functools.cache
def built():
    """The extension."""
    here = pathlib.Path(__file__).parent
    return load_inline(
        "kimi_linear_oracle",
        BINDING,
        (here / "decode.cu").read_text(),
        functions=["scratch", "prepare", "step"],
        extra_include_paths=[str(here)],
        extra_cuda_cflags=["-O3", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a"],
    )


class Model(nn.Module):
    """The weights as buffers, and scratch for steps on one stream."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.blocks = nn.ModuleList(nn.Module() for _ in cfg.pattern)
        for name, (shape, dtype) in layout(cfg).items():
            *path, leaf = name.split(".")
            at = self
            for part in path:
                if not hasattr(at, part):
                    at.add_module(part, nn.Module())
                at = getattr(at, part)
            at.register_buffer(leaf, torch.zeros(shape, dtype=dtype))
        self.number, self.is_ready, self.results = -1, False, []
        self.places = [0]  # of what a step is given, in the addresses that a launch takes
        for number, kind in enumerate(cfg.pattern):
            first = 2 + STATE * number
            self.places += range(first, first + 4) if kind == "kda" else (first + 8, first + 9)
        self.names = [KDA if kind == "kda" else MLA for kind in cfg.pattern]
        self.latent = [number for number, kind in enumerate(cfg.pattern) if kind == "mla"]
        self.register_load_state_dict_post_hook(lambda model, _: model.forget())

    def _apply(self, *args, **named):
        self.forget()
        return super()._apply(*args, **named)

    def forget(self):
        """Addresses may be others now."""
        self.is_ready = False

    def prepare(self):
        """Hand the addresses of the weights to the extension; values stay where they are."""
        cfg, held = self.cfg, dict(self.named_buffers())
        device = held["blocks.0.attn_norm"].device
        sizes = [cfg.hidden, cfg.kda_heads, cfg.kda_head_dim, cfg.mla_heads, cfg.kv_lora]
        sizes += [cfg.qk_nope, cfg.qk_rope, cfg.v_head, cfg.n_experts, cfg.n_active, cfg.moe_inter]
        sizes += [int(kind == "mla") for kind in cfg.pattern]
        if cfg.n_shared != 1 or cfg.short_conv != 4 or cfg.group != 128 or len(cfg.pattern) != 4:
            raise ValueError("built for four blocks, one shared expert, four taps, groups of 128")
        self.scratch = torch.zeros(built().scratch(sizes), device=device)
        powers = torch.arange(0, cfg.qk_rope, 2, dtype=torch.float64, device=device) / cfg.qk_rope
        self.rates = cfg.rope_theta**-powers / math.pi
        addresses = [at for n, kind in enumerate(cfg.pattern) for at in of_layer(held, n, kind)]
        at = self.scratch.data_ptr(), self.rates.data_ptr()
        self.number = built().prepare(self.number, sizes, addresses, cfg.routed_scaling, *at)
        self.results, self.is_ready = [], True

    def step(self, hidden, state):
        """hidden (1, hidden) and the state of all blocks, to those after one token.

        What the launch does not need is done behind it.
        """
        if not self.is_ready:
            self.prepare()
        given = [hidden.data_ptr()]
        for held, names in zip(state, self.names, strict=True):
            given += [held[name].data_ptr() for name in names]
        found = self.free_results(hidden, given)
        at = found.at.copy()
        for place, address in zip(self.places, given, strict=True):
            at[place] = address
        caches = [self.longer(state[number], at, 2 + STATE * number) for number in self.latent]
        built().step(self.number, at, len(state[self.latent[0]]["c_kv"]))
        after = list(found.state)
        for number, memory in zip(self.latent, caches, strict=True):
            after[number] = {name: a_row_more(memory[name], state[number][name]) for name in MLA}
        return found.hidden, after

    def longer(self, held, at, first):
        """Memory for caches with a row more, and its addresses: the same, where there is room."""
        memory = held
        if not all(map(has_room, held.values())):
            memory = {
                name: held[name].new_empty(len(held[name]) + SPARE, held[name].shape[1])
                for name in MLA
            }
        at[first + 10], at[first + 11] = (memory[name].data_ptr() for name in MLA)
        return memory

    def free_results(self, hidden, given):
        """Tensors for results, none of them an input of this step."""
        for results in self.results:
            if results.all.isdisjoint(given):
                return results
        self.results.append(Results(self.cfg, hidden.device))
        return self.results[-1]


class Results:
    """Tensors for what a step returns, but for the caches, and their places among the addresses."""

    def __init__(self, cfg, device):
        heads, d = cfg.kda_heads, cfg.kda_head_dim
        self.hidden = torch.empty(1, cfg.hidden, dtype=cfg.dtype, device=device)
        self.state, self.at = [], [0, self.hidden.data_ptr()]
        for kind in cfg.pattern:
            held = {}
            if kind == "kda":
                held["S"] = torch.empty(heads, d, d, device=device)
                for name in KDA[1:]:
                    held[name] = torch.empty(heads * d, 3, dtype=cfg.dtype, device=device)
            self.state.append(held)
            mine = [value.data_ptr() for value in held.values()] or [0] * 4
            self.at += [0, 0, 0, 0, *mine, 0, 0, 0, 0]
        self.all = {at for at in self.at if at}


def has_room(cache):
    """Whether there is memory for a row behind a cache."""
    rows, width = cache.shape
    end = (cache.storage_offset() + (rows + 1) * width) * cache.element_size()
    return cache.untyped_storage().nbytes() >= end


def a_row_more(memory, cache):
    """The rows of a cache and the one behind them, of the memory where they are now."""
    rows, width = cache.shape
    return memory.as_strided((rows + 1, width), (width, 1))


def of_layer(held, number, kind):
    """Addresses of a layer's weights, in the order of the kernel's `Layer`."""
    base = f"blocks.{number}."

    def packed(name):
        return [held[f"{base}{name}.{part}"].data_ptr() for part in PARTS]

    found = [
        held[base + name].data_ptr() for name in ("attn_norm", "moe_norm", "moe.router.weight")
    ]
    if kind == "kda":
        found += [held[base + name].data_ptr() for name in ("attn.beta_proj.weight", "attn.conv_w")]
        matrices = [packed(f"attn.{name}_proj") for name in "qkvg"]
    else:
        found += [0, 0]
        matrices = [*(packed(f"attn.{name}") for name in ("q_proj", "kv_a", "kv_b")), [0, 0, 0]]
    matrices += [packed("attn.o_proj"), *(packed(f"moe.{name}") for name in EXPERTS)]
    return [*found, *(at for matrix in matrices for at in matrix)]


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
            inter = cfg.moe_inter * (1 if stack else cfg.n_shared)
            matrix(f"{base}moe.{prefix}gate", cfg.hidden, inter, *stack)
            matrix(f"{base}moe.{prefix}up", cfg.hidden, inter, *stack)
            matrix(f"{base}moe.{prefix}down", inter, cfg.hidden, *stack)
    return found
