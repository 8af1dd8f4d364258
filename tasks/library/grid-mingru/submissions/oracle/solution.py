"""Greedy rollouts of a MinGRU policy, simply: two kernel launches a step, state in global memory.

A block plays `SOME` environments with a thread for each hidden unit; weights are read through L2, from
a transposed copy that is made when they are loaded. Everything in float32. Where there is no GPU, the
same functions are compiled as C and run in loops, so that the arithmetic can be tried anywhere.
Expected on an H200: 60 ms for (4096, 32) and 0.25 s for (65536, 16), bound by L2.
"""

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import nn

SHARED = r"""
#include <math.h>
#include <stdint.h>
#ifdef __CUDACC__
#define FN __host__ __device__ static inline
#else
#define FN static inline
#endif
#define HIDDEN 256
#define LAYERS 3
#define SOME 8

typedef struct {
    const float *w_enc, *b_enc, *turned, *w_a, *b_a;  // turned: (layer, input, 3 * HIDDEN)
} Policy;

FN float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// One unit of the encoder, of one environment.
FN float encoded(const Policy *p, const int *agent, const int *food, int unit) {
    const float *w = p->w_enc + 4 * unit;
    float sum = w[0] * ((float)(food[0] - agent[0]) / 11.0f) + w[1] * ((float)(food[1] - agent[1]) / 11.0f);
    return sum + w[2] * ((float)agent[0] / 10.0f) + w[3] * ((float)agent[1] / 10.0f) + p->b_enc[unit];
}

// One unit of a layer for SOME environments: h and next are (SOME, HIDDEN), state of this unit has a stride.
FN void through_layer(const Policy *p, int layer, int unit, const float *h, float *next, float *state,
                      int64_t stride, int count) {
    const float *w = p->turned + (int64_t)layer * HIDDEN * 3 * HIDDEN + unit;
    float z[3][SOME];
    for (int e = 0; e < SOME; e++) z[0][e] = z[1][e] = z[2][e] = 0.0f;
    for (int k = 0; k < HIDDEN; k++, w += 3 * HIDDEN) {
        float a = w[0], b = w[HIDDEN], c = w[2 * HIDDEN];
        for (int e = 0; e < SOME; e++) {
            float x = h[e * HIDDEN + k];
            z[0][e] += a * x;
            z[1][e] += b * x;
            z[2][e] += c * x;
        }
    }
    for (int e = 0; e < count; e++) {
        float s = state[e * stride], open = sigmoid(z[2][e]);
        float out = s + sigmoid(z[1][e]) * (tanhf(z[0][e]) - s);
        state[e * stride] = out;
        next[e * HIDDEN + unit] = open * out + (1.0f - open) * h[e * HIDDEN + unit];
    }
}

FN float logit(const Policy *p, const float *h, int action) {
    float sum = 0.0f;
    for (int k = 0; k < HIDDEN; k++) sum += p->w_a[action * HIDDEN + k] * h[k];
    return sum + p->b_a[action];
}

// Move one agent; 1 where it is paid.
FN int moved(const float *logits, int *agent, const int *food) {
    int action = 0;
    for (int a = 1; a < 4; a++)
        if (logits[a] > logits[action]) action = a;
    int *at = agent + (action < 2), by = action & 1 ? 1 : -1;
    *at = *at + by < 0 ? 0 : *at + by > 10 ? 10 : *at + by;
    return agent[0] == food[0] && agent[1] == food[1];
}

// What follows in one environment when somebody is paid.
FN void paid(uint64_t *rng, int own, int *food) {
    for (int n = 0; n < 2; n++) {
        *rng = (*rng * 6364136223846793005ull + 1) & 0x7fffffffffffffffull;
        if (own) food[n] = (int)(*rng % 11);
    }
}
"""

CUDA = r"""
__global__ void play(Policy p, int n, int *agents, int *foods, float *state, float *logits, int *hits, int *any) {
    __shared__ float two[2][SOME * HIDDEN];
    int unit = threadIdx.x, first = blockIdx.x * SOME, count = min(SOME, n - first);
    for (int e = 0; e < SOME; e++)
        two[0][e * HIDDEN + unit] =
            e < count ? encoded(&p, agents + 2 * (first + e), foods + 2 * (first + e), unit) : 0.0f;
    __syncthreads();
    for (int layer = 0; layer < LAYERS; layer++) {
        float *own = state + ((int64_t)layer * n + first) * HIDDEN + unit;
        through_layer(&p, layer, unit, two[layer & 1], two[1 - (layer & 1)], own, HIDDEN, count);
        __syncthreads();
    }
    if (unit < 4 * count) logits[4 * first + unit] = logit(&p, two[1] + (unit / 4) * HIDDEN, unit % 4);
    __syncthreads();
    if (unit < count) {
        int e = first + unit;
        hits[e] = moved(logits + 4 * e, agents + 2 * e, foods + 2 * e);
        if (hits[e]) atomicOr(any, 1);
    }
}

__global__ void pay(int n, const int *hits, const int *any, uint64_t *rngs, int *foods, int *rewards) {
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= n || !*any) return;
    paid(rngs + e, hits[e], foods + 2 * e);
    rewards[e] += hits[e];
}

static Policy policy_of(const std::vector<torch::Tensor> &w) {
    return {w[0].data_ptr<float>(), w[1].data_ptr<float>(), w[2].data_ptr<float>(), w[3].data_ptr<float>(),
            w[4].data_ptr<float>()};
}

void rollout(std::vector<torch::Tensor> w, torch::Tensor agents, torch::Tensor foods, torch::Tensor rngs,
             torch::Tensor state, torch::Tensor logits, torch::Tensor rewards, torch::Tensor hits, torch::Tensor any) {
    int n = agents.size(0), horizon = any.size(0);
    auto stream = at::cuda::getCurrentCUDAStream();
    auto *own = (uint64_t *)rngs.data_ptr<int64_t>();
    int *a = agents.data_ptr<int>(), *f = foods.data_ptr<int>(), *h = hits.data_ptr<int>();
    for (int t = 0; t < horizon; t++) {
        int *flag = any.data_ptr<int>() + t;
        play<<<(n + SOME - 1) / SOME, HIDDEN, 0, stream>>>(
            policy_of(w), n, a, f, state.data_ptr<float>(), logits.data_ptr<float>(), h, flag);
        pay<<<(n + 255) / 256, 256, 0, stream>>>(n, h, flag, own, f, rewards.data_ptr<int>());
    }
}
"""

HOST = r"""
void rollout(const Policy *p, int n, int horizon, int *agents, int *foods, uint64_t *rngs, float *state, float *logits,
             int *rewards, int *hits) {
    float two[2][SOME * HIDDEN];
    for (int t = 0; t < horizon; t++) {
        int any = 0;
        for (int first = 0; first < n; first += SOME) {
            int count = n - first < SOME ? n - first : SOME;
            for (int e = 0; e < SOME; e++)
                for (int u = 0; u < HIDDEN; u++)
                    two[0][e * HIDDEN + u] =
                        e < count ? encoded(p, agents + 2 * (first + e), foods + 2 * (first + e), u) : 0.0f;
            for (int layer = 0; layer < LAYERS; layer++)
                for (int u = 0; u < HIDDEN; u++)
                    through_layer(p, layer, u, two[layer & 1], two[1 - (layer & 1)],
                                  state + ((int64_t)layer * n + first) * HIDDEN + u, HIDDEN, count);
            for (int e = 0; e < count; e++) {
                float *own = logits + 4 * (first + e);
                for (int a = 0; a < 4; a++) own[a] = logit(p, two[1] + e * HIDDEN, a);
                any |= hits[first + e] = moved(own, agents + 2 * (first + e), foods + 2 * (first + e));
            }
        }
        for (int e = 0; any && e < n; e++) {
            paid(rngs + e, hits[e], foods + 2 * e);
            rewards[e] += hits[e];
        }
    }
}
"""


@functools.cache
def on_gpu():
    from torch.utils.cpp_extension import load_inline

    declared = (
        "void rollout(std::vector<torch::Tensor> w, torch::Tensor agents, torch::Tensor foods, torch::Tensor rngs,"
        " torch::Tensor state, torch::Tensor logits, torch::Tensor rewards, torch::Tensor hits, torch::Tensor any);"
    )
    return load_inline(
        name="grid_mingru_simple",
        cpp_sources=[declared],
        cuda_sources=["#include <ATen/cuda/CUDAContext.h>\n" + SHARED + CUDA],
        functions=["rollout"],
        extra_cuda_cflags=["-O3"],
    ).rollout


@functools.cache
def on_host():
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "rollout.c"), Path(folder, "rollout.so")
        source.write_text(SHARED + HOST)
        command = ["gcc", "-O3", "-shared", "-fPIC", "-o", str(library), str(source), "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        return ctypes.CDLL(str(library)).rollout


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w_enc = nn.Parameter(torch.zeros(256, 4))
        self.b_enc = nn.Parameter(torch.zeros(256))
        self.w_gru = nn.Parameter(torch.zeros(3, 768, 256))
        self.w_a = nn.Parameter(torch.zeros(4, 256))
        self.b_a = nn.Parameter(torch.zeros(4))
        self.w_v = nn.Parameter(torch.zeros(1, 256))
        self.b_v = nn.Parameter(torch.zeros(1))
        self.packed = None

    def weights(self):
        """As the kernels read them; packed again when a parameter has changed."""
        state = [(id(value), value.data_ptr(), value._version) for value in self.parameters()]
        if self.packed is None or self.packed[0] != state:
            turned = self.w_gru.detach().transpose(1, 2).contiguous()
            own = [self.w_enc, self.b_enc, turned, self.w_a, self.b_a]
            self.packed = state, [value.detach().contiguous() for value in own]
        return self.packed[1]


def run(num_envs, horizon, seed, model):
    device = model.w_enc.device
    drawn = torch.Generator().manual_seed(seed)
    agents = torch.randint(0, 11, (num_envs, 2), generator=drawn).to(device, torch.int32)
    foods = torch.randint(0, 11, (num_envs, 2), generator=drawn).to(device, torch.int32)
    rngs = torch.arange(num_envs, device=device) + 10007 * seed
    state = torch.zeros(3, num_envs, 256, device=device)
    logits = torch.zeros(num_envs, 4, device=device)
    rewards = torch.zeros(num_envs, device=device, dtype=torch.int32)
    hits = torch.zeros(num_envs, device=device, dtype=torch.int32)
    if device.type == "cuda":
        any_hit = torch.zeros(horizon, device=device, dtype=torch.int32)
        on_gpu()(model.weights(), agents, foods, rngs, state, logits, rewards, hits, any_hit)
    else:
        arrays = (agents, foods, rngs, state, logits, rewards, hits)
        packed = (ctypes.c_void_p * 5)(*(value.data_ptr() for value in model.weights()))
        own = [ctypes.c_void_p(value.data_ptr()) for value in arrays]
        on_host()(ctypes.byref(packed), num_envs, horizon, *own)
    return rewards.to(torch.int64), agents.to(torch.int64), logits
