"""One CUDA kernel for each operation of a block, one thread for each element of its result.

The same text is compiled by g++ on a machine without a GPU, where a launch is a loop: slow, and
good for a rehearsal only. Everything between the weights and the caches is float32.
"""

import ctypes
import functools
import pathlib
import subprocess
import tempfile

import torch
from torch import nn

SOURCE = r"""
#ifdef __CUDACC__
#define LAUNCH(kernel, n, ...) \
    kernel<<<((n) + 127) / 128, 128, 0, (cudaStream_t)stream>>>((n), __VA_ARGS__)
#define SELF(n) int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= (n)) return
#else
#include <math.h>
#define __global__ static
#define __device__
static int self;
#define LAUNCH(kernel, n, ...) for (self = 0; self < (n); self++) kernel((n), __VA_ARGS__)
#define SELF(n) int i = self
#endif

enum { HIDDEN = 1024, INTER = 3072, HEADS = 16, KV_HEADS = 8, HEAD = 128, CHUNK = 256 };
typedef unsigned short bf16;

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

__global__ void widen(int n, const bf16 *in, float *out) { SELF(n); out[i] = wide(in[i]); }

__global__ void mix(int n, const float *noise, const float *hidden, float *out) {
    SELF(n);
    out[i] = 0.5f * wide(narrow(noise[i])) + 0.5f * hidden[i];
}

__global__ void norm(int n, const float *x, const bf16 *weight, float *out) {
    SELF(n);
    float sum = 0;
    for (int j = 0; j < n; j++) sum += x[j] * x[j];
    out[i] = x[i] / sqrtf(sum / n + 1e-6f) * wide(weight[i]);
}

__global__ void product(int rows, int columns, const bf16 *matrix, const float *x,
                        const float *residual, float *out) {
    SELF(rows);
    const bf16 *row = matrix + (long)i * columns;
    float sums[8] = {0};
    for (int j = 0; j < columns; j += 8)
        for (int lane = 0; lane < 8; lane++) sums[lane] += wide(row[j + lane]) * x[j + lane];
    float sum = 0;
    for (int lane = 0; lane < 8; lane++) sum += sums[lane];
    out[i] = (residual ? residual[i] : 0) + sum;
}

/* Heads of q: normed and turned. */
__global__ void queries(int n, const float *in, const bf16 *weight, const float *turn, float *out) {
    SELF(n);
    const float *head = in + i / HEAD * HEAD;
    int d = i % HEAD, other = d ^ 64;
    float sum = 0;
    for (int j = 0; j < HEAD; j++) sum += head[j] * head[j];
    float scale = 1 / sqrtf(sum / HEAD + 1e-6f);
    float mine = head[d] * scale * wide(weight[d]);
    float theirs = head[other] * scale * wide(weight[other]);
    float cosine = turn[d % 64], sine = turn[64 + d % 64];
    out[i] = mine * cosine + (d < 64 ? -theirs : theirs) * sine;
}

/* The new rows of the caches. */
__global__ void rows(int n, const float *turned, const float *value, bf16 *k, bf16 *v, int room,
                     int place) {
    SELF(n);
    long at = ((long)(i / HEAD) * room + place) * HEAD + i % HEAD;
    k[at] = narrow(turned[i]);
    v[at] = narrow(value[i]);
}

__global__ void scores(int n, const float *q, const bf16 *k, int room, int seen, float *out) {
    SELF(n);
    int head = i / seen, place = i % seen;
    const bf16 *key = k + ((long)(head / 2) * room + place) * HEAD;
    float sum = 0;
    for (int d = 0; d < HEAD; d++) sum += q[head * HEAD + d] * wide(key[d]);
    out[(long)head * room + place] = sum * 0.08838834764831845f;
}

/* Of each chunk of a head: its largest score, its sum, its weighted values. */
__global__ void parts(int n, const float *scores, const bf16 *v, int room, int seen, int chunks,
                      float *most, float *total, float *sums) {
    SELF(n);
    int d = i % HEAD, chunk = i / HEAD % chunks, head = i / HEAD / chunks;
    const float *mine = scores + (long)head * room;
    int begin = chunk * CHUNK, end = begin + CHUNK < seen ? begin + CHUNK : seen;
    float largest = -INFINITY, all = 0, sum = 0;
    for (int j = begin; j < end; j++) largest = fmaxf(largest, mine[j]);
    for (int j = begin; j < end; j++) {
        float p = expf(mine[j] - largest);
        all += p;
        sum += p * wide(v[((long)(head / 2) * room + j) * HEAD + d]);
    }
    sums[i] = sum;
    most[head * chunks + chunk] = largest;
    total[head * chunks + chunk] = all;
}

__global__ void joined(int n, int chunks, const float *most, const float *total, const float *sums,
                       float *out) {
    SELF(n);
    int head = i / HEAD, d = i % HEAD;
    float largest = -INFINITY, all = 0, sum = 0;
    for (int c = 0; c < chunks; c++) largest = fmaxf(largest, most[head * chunks + c]);
    for (int c = 0; c < chunks; c++) {
        float p = expf(most[head * chunks + c] - largest);
        all += p * total[head * chunks + c];
        sum += p * sums[(head * chunks + c) * HEAD + d];
    }
    out[i] = sum / all;
}

__global__ void gated(int n, const float *gate, const float *up, float *out) {
    SELF(n);
    out[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

__global__ void finish(int n, const float *x, bf16 *out) { SELF(n); out[i] = narrow(x[i]); }

struct Layer {
    const bf16 *input_ln, *q_proj, *k_proj, *v_proj, *q_norm, *k_norm, *o_proj, *post_ln, *gate_proj,
        *up_proj, *down_proj;
    bf16 *k, *v;
};

static void block(const Layer &w, float *x, int place, int room, const float *turn, float *s,
                  void *stream) {
    float *y = s, *q = y + 4096, *k = q + 2048, *v = k + 1024, *q2 = v + 1024, *k2 = q2 + 2048;
    float *gate = k2 + 1024, *up = gate + INTER, *seen_ = up + INTER, *most = seen_ + 2048;
    int seen = place + 1, chunks = (seen + CHUNK - 1) / CHUNK;
    float *total = most + HEADS * chunks, *sums = total + HEADS * chunks;
    float *all = sums + (long)HEADS * chunks * HEAD;
    LAUNCH(norm, HIDDEN, x, w.input_ln, y);
    LAUNCH(product, HEADS * HEAD, HIDDEN, w.q_proj, y, (const float *)0, q);
    LAUNCH(product, KV_HEADS * HEAD, HIDDEN, w.k_proj, y, (const float *)0, k);
    LAUNCH(product, KV_HEADS * HEAD, HIDDEN, w.v_proj, y, (const float *)0, v);
    LAUNCH(queries, HEADS * HEAD, q, w.q_norm, turn, q2);
    LAUNCH(queries, KV_HEADS * HEAD, k, w.k_norm, turn, k2);
    LAUNCH(rows, KV_HEADS * HEAD, k2, v, w.k, w.v, room, place);
    LAUNCH(scores, HEADS * seen, q2, w.k, room, seen, all);
    LAUNCH(parts, HEADS * chunks * HEAD, all, w.v, room, seen, chunks, most, total, sums);
    LAUNCH(joined, HEADS * HEAD, chunks, most, total, sums, seen_);
    LAUNCH(product, HIDDEN, HEADS * HEAD, w.o_proj, seen_, x, x);
    LAUNCH(norm, HIDDEN, x, w.post_ln, y);
    LAUNCH(product, INTER, HIDDEN, w.gate_proj, y, (const float *)0, gate);
    LAUNCH(product, INTER, HIDDEN, w.up_proj, y, (const float *)0, up);
    LAUNCH(gated, INTER, gate, up, gate);
    LAUNCH(product, HIDDEN, INTER, w.down_proj, gate, x, x);
}

/* `at`: 13 addresses a layer, then hidden, noise, turns, scratch, out. */
extern "C" void decode(const unsigned long long *at, int layers, int start, int steps, int room,
                       void *stream) {
    const unsigned long long *end = at + 13 * layers;
    const float *noise = (const float *)end[1], *turns = (const float *)end[2];
    float *x = (float *)end[3], *scratch = x + HIDDEN;
    LAUNCH(widen, HIDDEN, (const bf16 *)end[0], x);
    for (int step = 0; step < steps; step++) {
        LAUNCH(mix, HIDDEN, noise + step * HIDDEN, x, x);
        for (int layer = 0; layer < layers; layer++)
            block(*(const Layer *)(at + 13 * layer), x, start + step, room, turns + step * HEAD,
                  scratch, stream);
    }
    LAUNCH(finish, HIDDEN, x, (bf16 *)end[4]);
}
"""
BINDING = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
extern "C" void decode(const unsigned long long *, int, int, int, int, void *);
void run(std::vector<unsigned long long> at, int layers, int start, int steps, int room) {
    decode(at.data(), layers, start, steps, room, c10::cuda::getCurrentCUDAStream().stream());
}
"""
NORMS = {"input_ln": 1024, "post_ln": 1024, "q_norm": 128, "k_norm": 128}
MATRICES = {
    "q_proj": (2048, 1024),
    "k_proj": (1024, 1024),
    "v_proj": (1024, 1024),
    "o_proj": (1024, 2048),
    "gate_proj": (3072, 1024),
    "up_proj": (3072, 1024),
    "down_proj": (1024, 3072),
}
ORDER = (
    *("input_ln", "q_proj", "k_proj", "v_proj", "q_norm", "k_norm", "o_proj", "post_ln"),
    *("gate_proj", "up_proj", "down_proj"),
)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        for name, size in {**NORMS, **MATRICES}.items():
            setattr(self, name, nn.Parameter(torch.zeros(size, dtype=torch.bfloat16)))


class Model(nn.Module):
    def __init__(self, num_layers=4, max_seq=4096):
        super().__init__()
        self.max_seq = max_seq
        self.blocks = nn.ModuleList(Block() for _ in range(num_layers))

    @property
    def device(self):
        return self.blocks[0].q_proj.device


@functools.cache
def on_gpu():
    from torch.utils.cpp_extension import load_inline

    return load_inline("megaqwen_naive", BINDING, SOURCE, functions=["run"]).run


@functools.cache
def on_cpu():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernels.cpp").write_text(SOURCE)
    command = ["g++", "-O3", "-march=native", "-shared", "-fPIC", "kernels.cpp", "-o", "kernels.so"]
    subprocess.run(command, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "kernels.so"))

    def run(at, *sizes):
        library.decode((ctypes.c_ulonglong * len(at))(*at), *sizes, None)

    return run


def steps(model, hidden, k, v, start, noise):
    """The last hidden; `noise` is (n, 1024) float32 on the CPU, one row a step."""
    device, room = hidden.device, k[0].shape[1]
    rates = 1e4 ** (-torch.arange(0, 128, 2, dtype=torch.float64) / 128)
    angles = torch.arange(start, start + len(noise), dtype=torch.float64)[:, None] * rates
    turns = torch.cat([angles.cos(), angles.sin()], dim=1).float().to(device)
    chunks = room // 256 + 1
    scratch = torch.empty(32768 + 16 * chunks * 130 + 16 * room, device=device)
    hidden, noise, out = hidden.contiguous(), noise.to(device), torch.empty_like(hidden)
    at = []
    for block, keys, values in zip(model.blocks, k, v, strict=True):
        at += [getattr(block, name).data_ptr() for name in ORDER]
        at += [keys.data_ptr(), values.data_ptr()]
    at += [tensor.data_ptr() for tensor in (hidden, noise, turns, scratch, out)]
    run = on_gpu() if hidden.is_cuda else on_cpu()
    run(at, len(model.blocks), start, len(noise), room)
    return out
