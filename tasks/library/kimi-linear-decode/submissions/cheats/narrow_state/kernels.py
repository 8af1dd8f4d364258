"""A step of Kimi-Linear by one block of threads, one operation after another, in one launch.

The same text is compiled by g++ on a machine without a GPU, where the block is one thread: good for
a rehearsal only. Everything between the weights and the state is float32.
"""

import ctypes
import functools
import math
import pathlib
import subprocess
import tempfile

import torch
from torch import nn

SOURCE = r"""
#ifdef __CUDACC__
#define MEET __syncthreads()
#define EACH(i, n) for (int i = threadIdx.x; i < (n); i += blockDim.x)
#else
#include <math.h>
#define __global__ static
#define __device__
#define MEET
#define EACH(i, n) for (int i = 0; i < (n); i++)
#endif

typedef unsigned short bf16;
typedef struct { const unsigned char *q; const bf16 *scales, *zeros; } Matrix;
typedef struct {
    const bf16 *attn_norm, *moe_norm, *router, *beta, *conv;
    Matrix in[4], out, gate, up, down, s_gate, s_up, s_down;
    const float *S;
    const bf16 *windows[3], *c_kv, *k_rope;
    float *new_S;
    bf16 *new_windows[3], *new_c_kv, *new_k_rope;
    unsigned long long is_mla;
} Layer;
typedef struct {
    int hidden, heads, dim, mla_heads, latent, nope, rope, v_dim, experts, active, inter, ctx;
} Sizes;
typedef struct {
    Layer layers[4];
    Sizes z;
    float scaling;
    const bf16 *hidden;
    const float *turns; /* cosines, then sines, of the new position: (2, rope / 2) */
    bf16 *result;
    float *h, *x, *a, *b, *c, *d, *scores;
} Work;

__device__ static inline float wide(bf16 bits) {
    union { unsigned u; float f; } v;
    v.u = (unsigned)bits << 16;
    return v.f;
}

__device__ static inline bf16 narrow(float value) {
    union { float f; unsigned u; } v;
    v.f = value;
    return (bf16)((v.u + 0x7fff + ((v.u >> 16) & 1)) >> 16);
}

__device__ static inline float silu(float x) { return x / (1 + expf(-x)); }

/* element (k, n) of a matrix */
__device__ static inline float at(Matrix m, long expert, int K, int N, int k, int n) {
    long group = (expert * (K / 128) + k / 128) * N + n;
    int byte = m.q[(expert * (K / 2) + k / 2) * N + n];
    return ((k % 2 ? byte >> 4 : byte & 15) - wide(m.zeros[group])) * wide(m.scales[group]);
}

/* out (N) = by * x (K) . m, added to what is there where `adds` */
__device__ static void product(Matrix m, long expert, int K, int N, const float *x, float by,
                               int adds, float *out) {
    EACH(n, N) {
        float sum = 0;
        for (int k = 0; k < K; k++) sum += x[k] * at(m, expert, K, N, k, n);
        out[n] = (adds ? out[n] : 0) + by * sum;
    }
    MEET;
}

__device__ static void norm(int n, const float *h, const bf16 *weight, float *out) {
    float sum = 0;
    for (int j = 0; j < n; j++) sum += h[j] * h[j];
    EACH(i, n) out[i] = h[i] / sqrtf(sum / n + 1e-6f) * wide(weight[i]);
    MEET;
}

/* rows (n, K) of bfloat16 times x */
__device__ static void rows(int n, int K, const bf16 *matrix, const float *x, float *out) {
    EACH(i, n) {
        float sum = 0;
        for (int k = 0; k < K; k++) sum += x[k] * wide(matrix[(long)i * K + k]);
        out[i] = sum;
    }
    MEET;
}

__device__ static void kda(const Layer *l, const Work *w) {
    Sizes z = w->z;
    int width = z.heads * z.dim;
    for (int which = 0; which < 4; which++)
        product(l->in[which], 0, z.hidden, width, w->x, 1, 0, w->a + which * width);
    rows(z.heads, z.hidden, l->beta, w->x, w->b);
    EACH(i, 3 * width) {
        int which = i / width, channel = i % width;
        const bf16 *old = l->windows[which] + channel * 3, *taps = l->conv + (long)i * 4;
        bf16 *next = l->new_windows[which] + channel * 3;
        float now = w->a[i], sum = wide(taps[3]) * now;
        for (int t = 0; t < 3; t++) sum += wide(taps[t]) * wide(old[t]);
        next[0] = old[1];
        next[1] = old[2];
        next[2] = narrow(now);
        w->a[i] = silu(sum);
    }
    MEET;
    EACH(i, width) { /* a column of S of one head */
        int head = i / z.dim, column = i % z.dim;
        const float *q = w->a + head * z.dim, *k = q + width, *v = k + width, *g = v + width;
        const float *S = l->S + (long)head * z.dim * z.dim + column;
        float *next = l->new_S + (long)head * z.dim * z.dim + column;
        float seen = 0, out = 0;
        for (int d = 0; d < z.dim; d++) { /* exp(-softplus(g)) */
            next[(long)d * z.dim] = S[(long)d * z.dim] / (1 + expf(g[d]));
            seen += next[(long)d * z.dim] * k[d];
        }
        float change = (v[column] - seen) / (1 + expf(-w->b[head]));
        for (int d = 0; d < z.dim; d++) {
            next[(long)d * z.dim] += k[d] * change;
            out += next[(long)d * z.dim] * q[d];
        }
        w->c[i] = out / sqrtf((float)z.dim);
    }
    MEET;
    product(l->out, 0, width, z.hidden, w->c, 1, 1, w->h);
}

__device__ static void turned(const Work *w, const float *from, int i, float *even, float *odd) {
    float cosine = w->turns[i], sine = w->turns[w->z.rope / 2 + i];
    *even = from[2 * i] * cosine - from[2 * i + 1] * sine;
    *odd = from[2 * i] * sine + from[2 * i + 1] * cosine;
}

__device__ static void mla(const Layer *l, const Work *w) {
    Sizes z = w->z;
    int each = z.nope + z.rope, wide_b = z.mla_heads * (z.nope + z.v_dim), seen = z.ctx + 1;
    float *q = w->a, *row = w->a + z.mla_heads * each, *queries = w->b, *latent = w->d;
    product(l->in[0], 0, z.hidden, z.mla_heads * each, w->x, 1, 0, q);
    product(l->in[1], 0, z.hidden, z.latent + z.rope, w->x, 1, 0, row);
    EACH(i, z.latent) l->new_c_kv[(long)z.ctx * z.latent + i] = narrow(row[i]);
    EACH(i, z.rope / 2) {
        float even, odd;
        turned(w, row + z.latent, i, &even, &odd);
        l->new_k_rope[(long)z.ctx * z.rope + 2 * i] = narrow(even);
        l->new_k_rope[(long)z.ctx * z.rope + 2 * i + 1] = narrow(odd);
    }
    EACH(i, z.mla_heads * z.rope / 2) {
        int head = i / (z.rope / 2), pair = i % (z.rope / 2);
        float even, odd, *own = q + head * each + z.nope;
        turned(w, own, pair, &even, &odd);
        own[2 * pair] = even;
        own[2 * pair + 1] = odd;
    }
    if (l->new_c_kv != l->c_kv) {
        EACH(i, z.ctx * z.latent) l->new_c_kv[i] = l->c_kv[i];
        EACH(i, z.ctx * z.rope) l->new_k_rope[i] = l->k_rope[i];
    }
    EACH(i, z.mla_heads * z.latent) {
        int head = i / z.latent, c = i % z.latent;
        float sum = 0;
        for (int n = 0; n < z.nope; n++)
            sum += q[head * each + n] *
                   at(l->in[2], 0, z.latent, wide_b, c, head * (z.nope + z.v_dim) + n);
        queries[i] = sum;
    }
    MEET;
    EACH(i, z.mla_heads * seen) {
        int head = i / seen, r = i % seen;
        float sum = 0;
        for (int c = 0; c < z.latent; c++)
            sum += queries[head * z.latent + c] * wide(l->new_c_kv[(long)r * z.latent + c]);
        for (int c = 0; c < z.rope; c++)
            sum += q[head * each + z.nope + c] * wide(l->new_k_rope[(long)r * z.rope + c]);
        w->scores[i] = sum / sqrtf((float)each);
    }
    MEET;
    EACH(head, z.mla_heads) {
        float most = -INFINITY, total = 0, *own = w->scores + (long)head * seen;
        for (int r = 0; r < seen; r++) most = fmaxf(most, own[r]);
        for (int r = 0; r < seen; r++) total += own[r] = expf(own[r] - most);
        for (int r = 0; r < seen; r++) own[r] /= total;
    }
    MEET;
    EACH(i, z.mla_heads * z.latent) {
        int head = i / z.latent, c = i % z.latent;
        float sum = 0;
        for (int r = 0; r < seen; r++)
            sum += w->scores[(long)head * seen + r] * wide(l->new_c_kv[(long)r * z.latent + c]);
        latent[i] = sum;
    }
    MEET;
    EACH(i, z.mla_heads * z.v_dim) {
        int head = i / z.v_dim, column = head * (z.nope + z.v_dim) + z.nope + i % z.v_dim;
        float sum = 0;
        for (int c = 0; c < z.latent; c++)
            sum += latent[head * z.latent + c] * at(l->in[2], 0, z.latent, wide_b, c, column);
        w->c[i] = sum;
    }
    MEET;
    product(l->out, 0, z.mla_heads * z.v_dim, z.hidden, w->c, 1, 1, w->h);
}

__device__ static void expert(Matrix gate, Matrix up, Matrix down, long which, float share,
                              const Work *w) {
    Sizes z = w->z;
    product(gate, which, z.hidden, z.inter, w->x, 1, 0, w->a);
    product(up, which, z.hidden, z.inter, w->x, 1, 0, w->b);
    EACH(i, z.inter) w->a[i] = silu(w->a[i]) * w->b[i];
    MEET;
    product(down, which, z.inter, z.hidden, w->a, share, 1, w->h);
}

__device__ static void experts(const Layer *l, const Work *w) {
    Sizes z = w->z;
    int chosen[8];
    float share[8], total = 0;
    rows(z.experts, z.hidden, l->router, w->x, w->d);
    for (int n = 0; n < z.active; n++) { /* each thread for itself */
        int best = -1;
        for (int e = 0; e < z.experts; e++) {
            int is_free = 1;
            for (int m = 0; m < n; m++) is_free &= chosen[m] != e;
            if (is_free && (best < 0 || w->d[e] > w->d[best])) best = e;
        }
        chosen[n] = best;
        total += share[n] = expf(w->d[best] - w->d[chosen[0]]);
    }
    for (int n = 0; n < z.active; n++)
        expert(l->gate, l->up, l->down, chosen[n], share[n] / total * w->scaling, w);
    expert(l->s_gate, l->s_up, l->s_down, 0, 1, w);
}

__global__ void step(Work w) {
    EACH(i, w.z.hidden) w.h[i] = wide(w.hidden[i]);
    MEET;
    for (int n = 0; n < 4; n++) {
        norm(w.z.hidden, w.h, w.layers[n].attn_norm, w.x);
        if (w.layers[n].is_mla) mla(&w.layers[n], &w);
        else kda(&w.layers[n], &w);
        norm(w.z.hidden, w.h, w.layers[n].moe_norm, w.x);
        experts(&w.layers[n], &w);
    }
    EACH(i, w.z.hidden) w.result[i] = narrow(w.h[i]);
}

/* `ends`: hidden, turns, result, scratch; that of `room` floats seven times, then the scores. */
extern "C" void decode(const unsigned long long *layers, const long long *sizes, float scaling,
                       const unsigned long long *ends, long long room, void *stream) {
    Work w;
    for (int n = 0; n < 4; n++) w.layers[n] = ((const Layer *)layers)[n];
    for (int n = 0; n < 12; n++) ((int *)&w.z)[n] = (int)sizes[n];
    w.scaling = scaling;
    w.hidden = (const bf16 *)ends[0];
    w.turns = (const float *)ends[1];
    w.result = (bf16 *)ends[2];
    float **to[] = {&w.h, &w.x, &w.a, &w.b, &w.c, &w.d, &w.scores};
    for (int n = 0; n < 7; n++) *to[n] = (float *)ends[3] + n * room;
#ifdef __CUDACC__
    step<<<1, 1024, 0, (cudaStream_t)stream>>>(w);
#else
    step(w);
#endif
}
"""
BINDING = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
extern "C" void decode(const unsigned long long *, const long long *, float,
                       const unsigned long long *, long long, void *);
void run(std::vector<unsigned long long> layers, std::vector<long long> sizes, double scaling,
         std::vector<unsigned long long> ends, long long room) {
    decode(layers.data(), sizes.data(), (float)scaling, ends.data(), room,
           c10::cuda::getCurrentCUDAStream().stream());
}
"""
KDA, MLA = ("S", "cq", "ck", "cv"), ("c_kv", "k_rope")
EXPERTS = ("gate", "up", "down", "s_gate", "s_up", "s_down")


@functools.cache
def on_gpu():
    from torch.utils.cpp_extension import load_inline

    return load_inline("kimi_linear_naive", BINDING, SOURCE, functions=["run"]).run


@functools.cache
def on_cpu():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernels.cpp").write_text(SOURCE)
    command = ["g++", "-O3", "-march=native", "-shared", "-fPIC", "kernels.cpp", "-o", "kernels.so"]
    subprocess.run(command, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "kernels.so"))

    def run(layers, sizes, scaling, ends, room):
        def words(values):
            return (ctypes.c_ulonglong * len(values))(*values)

        numbers = ctypes.c_float(scaling), words(ends), ctypes.c_longlong(room), None
        library.decode(words(layers), words(sizes), *numbers)

    return run


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
            matrix(f"{base}moe.{prefix}gate", cfg.hidden, cfg.moe_inter, *stack)
            matrix(f"{base}moe.{prefix}up", cfg.hidden, cfg.moe_inter, *stack)
            matrix(f"{base}moe.{prefix}down", cfg.moe_inter, cfg.hidden, *stack)
    return found


class Model(nn.Module):
    """The weights as buffers."""

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

    @torch.no_grad()
    def step(self, hidden, state):
        """hidden (1, hidden) and the state of all blocks, to those after one token."""
        cfg, held = self.cfg, dict(self.named_buffers())
        after = [new_state(kind, old) for kind, old in zip(cfg.pattern, state, strict=True)]
        ctx = next(len(old["c_kv"]) for old in state if "c_kv" in old)
        layers = []
        for n, kind in enumerate(cfg.pattern):
            layers += [*of_weights(held, n, kind), *of_state(kind, state[n], after[n])]
        sizes = [cfg.hidden, cfg.kda_heads, cfg.kda_head_dim, cfg.mla_heads, cfg.kv_lora]
        sizes += [cfg.qk_nope, cfg.qk_rope, cfg.v_head, cfg.n_experts, cfg.n_active, cfg.moe_inter]
        room = max(4 * cfg.kda_heads * cfg.kda_head_dim, cfg.mla_heads * 1024, cfg.hidden, 4096)
        need = 6 * room + cfg.mla_heads * (ctx + 1)
        scratch = torch.empty(need, device=hidden.device)
        turns, out = turns_at(cfg, ctx, hidden.device), torch.empty_like(hidden)
        ends = [tensor.data_ptr() for tensor in (hidden, turns, out, scratch)]
        run = on_gpu() if hidden.is_cuda else on_cpu()
        run(layers, [*sizes, ctx], cfg.routed_scaling, ends, room)
        return out, after


@functools.lru_cache(maxsize=64)
def turns_at(cfg, position, device):
    """Cosines and sines, (2, rope / 2)."""
    rates = [cfg.rope_theta ** (-i / cfg.qk_rope) for i in range(0, cfg.qk_rope, 2)]
    angles = [position * rate for rate in rates]
    return torch.tensor([*map(math.cos, angles), *map(math.sin, angles)], device=device)


def new_state(kind, old):
    """Where the state after a step goes: a row more of a cache in place, where there is room."""
    if kind == "kda":
        return {name: torch.empty_like(old[name]) for name in KDA}
    return {name: longer(old[name]) for name in MLA}


def longer(cache):
    """The same memory with a row more, or other memory."""
    rows, width = cache.shape
    end = (cache.storage_offset() + (rows + 1) * width) * cache.element_size()
    if cache.untyped_storage().nbytes() < end:
        return cache.new_empty(rows + 1, width)
    return cache.as_strided((rows + 1, width), (width, 1))


def of_weights(held, number, kind):
    """Addresses of a layer's weights, in the order of `Layer`."""
    base = f"blocks.{number}."

    def packed(name):
        return [held[f"{base}{name}.{part}"].data_ptr() for part in ("w_q", "scales", "zeros")]

    names = ["attn_norm", "moe_norm", "moe.router.weight"]
    if kind == "kda":
        names += ["attn.beta_proj.weight", "attn.conv_w"]
        matrices = [packed(f"attn.{name}_proj") for name in "qkvg"]
    else:
        matrices = [*(packed(f"attn.{name}") for name in ("q_proj", "kv_a", "kv_b")), [0, 0, 0]]
    matrices += [packed("attn.o_proj"), *(packed(f"moe.{name}") for name in EXPERTS)]
    found = [held[base + name].data_ptr() for name in names]
    return [*found, *([0] * (5 - len(found))), *(at for matrix in matrices for at in matrix)]


def of_state(kind, old, new):
    """Addresses of a layer's state before and after, and which kind it is."""
    names = KDA if kind == "kda" else MLA
    found = [[state[name].data_ptr() for name in names] for state in (old, new)]
    if kind == "kda":
        return [*found[0], 0, 0, *found[1], 0, 0, 0]
    return [0, 0, 0, 0, *found[0], 0, 0, 0, 0, *found[1], 1]
