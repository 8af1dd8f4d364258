"""The kernels: one thread a number, visits sorted by expert, eight of them a thread."""

import ctypes
import inspect
import subprocess
import tempfile
from pathlib import Path

import torch
from torch.utils.cpp_extension import load_inline

KERNEL = r"""
#ifdef __CUDACC__
#include <cuda_runtime.h>
#define BLOCK_INDEX (long)blockIdx.x
#else
#include <cmath>
#define __device__
static long BLOCK_INDEX;
struct { int x; } threadIdx = {0}, blockDim = {1};
#endif

typedef unsigned short Bits;
const int THREADS = 128, ROWS = 8; // visits that share a weight once it has been read

__device__ inline float widened(Bits bits) {
    union { unsigned whole; float value; } both = {(unsigned)bits << 16};
    return both.value;
}

__device__ inline Bits rounded(float value) {
    union { float value; unsigned whole; } both = {value};
    return (both.whole + 0x7FFF + (both.whole >> 16 & 1)) >> 16;
}

// A run of sorted visits, ROWS at most, that all go to the first one's expert.
__device__ inline int run_of(const int *experts, long first, long visits) {
    int count = 1;
    while (count < ROWS && first + count < visits && experts[first + count] == experts[first])
        count++;
    return count;
}

// hidden (sorted visits, I) float32: silu of the gate times up.
__global__ void glm_hidden(const Bits *x, const Bits *w1, const int *experts, const int *tokens,
                           float *hidden, long visits, int H, int I) {
    long at = BLOCK_INDEX * blockDim.x + threadIdx.x, group = at / I;
    int i = at % I;
    if (group * ROWS >= visits) return;
    long first = group * ROWS, end = first + ROWS < visits ? first + ROWS : visits;
    while (first < end) {
        int count = run_of(experts, first, end);
        const Bits *gate = w1 + ((long)experts[first] * 2 * I + i) * H, *up = gate + (long)I * H;
        float gates[ROWS] = {}, ups[ROWS] = {};
        for (int h = 0; h < H; h++) {
            float g = widened(gate[h]), u = widened(up[h]);
            for (int n = 0; n < ROWS; n++) {
                if (n >= count) break;
                float value = widened(x[(long)tokens[first + n] * H + h]);
                gates[n] += value * g;
                ups[n] += value * u;
            }
        }
        for (int n = 0; n < count; n++)
            hidden[(first + n) * I + i] = gates[n] / (1 + expf(-gates[n])) * ups[n];
        first += count;
    }
}

// results (sorted visits, H) float32.
__global__ void glm_results(const float *hidden, const Bits *w2, const int *experts, float *results,
                            long visits, int H, int I) {
    long at = BLOCK_INDEX * blockDim.x + threadIdx.x, group = at / H;
    int h = at % H;
    if (group * ROWS >= visits) return;
    long first = group * ROWS, end = first + ROWS < visits ? first + ROWS : visits;
    while (first < end) {
        int count = run_of(experts, first, end);
        const Bits *w = w2 + ((long)experts[first] * H + h) * I;
        float sums[ROWS] = {};
        for (int i = 0; i < I; i++) {
            float weight = widened(w[i]);
            for (int n = 0; n < ROWS; n++) {
                if (n >= count) break;
                sums[n] += weight * hidden[(first + n) * I + i];
            }
        }
        for (int n = 0; n < count; n++) results[(first + n) * H + h] = sums[n];
        first += count;
    }
}

// y (T, H): places[token, slot] is where a visit went.
__global__ void glm_sum(const float *results, const float *shared, const Bits *weights,
                        const int *places, Bits *y, long T, int top_k, int n_shared, int H) {
    long at = BLOCK_INDEX * blockDim.x + threadIdx.x, token = at / H;
    int h = at % H;
    if (token >= T) return;
    float sum = 0;
    for (int n = 0; n < n_shared; n++) sum += shared[(n * T + token) * H + h];
    for (int n = 0; n < top_k; n++) {
        float weight = widened(weights[token * top_k + n]);
        sum += weight * results[(long)places[token * top_k + n] * H + h];
    }
    y[at] = rounded(sum);
}

#ifdef __CUDACC__
#define START(kernel, count, ...) \
    kernel<<<((count) + THREADS - 1) / THREADS, THREADS, 0, (cudaStream_t)stream>>>(__VA_ARGS__)
#else
#define START(kernel, count, ...) \
    for (BLOCK_INDEX = 0; BLOCK_INDEX < (count); BLOCK_INDEX++) kernel(__VA_ARGS__)
#endif

extern "C" int experts(long x, long w1, long w2, long experts, long tokens, long hidden,
                       long results, long visits, int H, int I, long stream) {
    long groups = (visits + ROWS - 1) / ROWS;
    START(glm_hidden, groups * I, (Bits *)x, (Bits *)w1, (int *)experts, (int *)tokens,
          (float *)hidden, visits, H, I);
    START(glm_results, groups * H, (float *)hidden, (Bits *)w2, (int *)experts, (float *)results,
          visits, H, I);
#ifdef __CUDACC__
    return cudaGetLastError();
#else
    return 0;
#endif
}

extern "C" int sum(long results, long shared, long weights, long places, long y, long T, int top_k,
                   int n_shared, int H, long stream) {
    START(glm_sum, T * H, (float *)results, (float *)shared, (Bits *)weights, (int *)places,
          (Bits *)y, T, top_k, n_shared, H);
#ifdef __CUDACC__
    return cudaGetLastError();
#else
    return 0;
#endif
}
"""
BINDING = """
#include <pybind11/pybind11.h>

extern "C" int experts(long x, long w1, long w2, long experts, long tokens, long hidden,
                       long results, long visits, int H, int I, long stream);
extern "C" int sum(long results, long shared, long weights, long places, long y, long T, int top_k,
                   int n_shared, int H, long stream);

PYBIND11_MODULE(TORCH_EXTENSION_glm_plain, m) {
    m.def("experts", &experts);
    m.def("sum", &sum);
}
"""


def _on_gpu():
    bare = {"no_implicit_headers": True}  # newer torch; an older one adds its headers, and is slower
    known = inspect.signature(load_inline).parameters
    return load_inline(
        name="NAME",
        cpp_sources=[BINDING],
        cuda_sources=[KERNEL],
        **{name: value for name, value in bare.items() if name in known},
    )


def _rehearsed():
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "moe.cpp"), Path(folder, "moe.so")
        source.write_text(KERNEL)
        flags = ["-O2", "-shared", "-fPIC", "-D__global__="]
        subprocess.run(["g++", *flags, str(source), "-o", str(library)], check=True, timeout=120)
        loaded = ctypes.CDLL(str(library))
    number, size = ctypes.c_long, ctypes.c_int
    loaded.experts.argtypes = [*[number] * 8, size, size, number]
    loaded.sum.argtypes = [*[number] * 6, size, size, size, number]
    return loaded


kernels = _on_gpu() if torch.cuda.is_available() else _rehearsed()


def visited(x, w1, w2, ids, stream):
    """What the visits (T, slots) of some experts give, and at which place of it each one is."""
    E, H, I = w2.shape
    ids = ids.flatten()
    experts, order = ids.sort(stable=True)
    places = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
    tokens = order // (len(ids) // len(x))
    hidden = torch.empty(len(order), I, device=x.device)
    results = torch.empty(len(order), H, device=x.device)
    experts, tokens, places = experts.int(), tokens.int(), places.int()
    tensors = (t.data_ptr() for t in (x, w1, w2, experts, tokens, hidden, results))
    checked(kernels.experts(*tensors, len(order), H, I, stream))
    return results, places


def checked(code):
    if code:
        raise RuntimeError(f"the launch failed: CUDA error {code}")


def mixture(x, ids, weights, state):
    """The layer's output; ``state`` has the four weights as attributes."""
    T, H = x.shape
    n_shared = len(state.w1_shared)
    stream = torch.cuda.current_stream().cuda_stream if x.is_cuda else 0
    results, places = visited(x, state.w1_routed, state.w2_routed, ids, stream)
    every = torch.arange(n_shared, device=x.device).expand(T, n_shared)
    shared, _ = visited(x, state.w1_shared, state.w2_shared, every, stream)
    y = torch.empty_like(x)
    tensors = (t.data_ptr() for t in (results, shared, weights, places, y))
    checked(kernels.sum(*tensors, T, ids.shape[1], n_shared, H, stream))
    return y
