"""The kernel: one thread a query, every score computed, nothing shared.

Thread t reads all keys before it, keeps the mean score of each block in a sorted list of eight, and
then walks the kept blocks and the last 64 keys once more for a softmax with a running maximum. All
in float32. Correct, and slow: the keys are read again by each thread.

On a machine without a GPU g++ compiles the same text for a rehearsal, one thread after another.
"""

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
static long BLOCK_INDEX;
struct { int x; } threadIdx = {0}, blockDim = {1};
#endif

typedef unsigned short Bits;
const int THREADS = 64, BLOCK = 64, KEPT = 8, WINDOW = 64;

#ifndef __CUDACC__
#define __device__
#endif

__device__ inline float widened(Bits bits) {
    union { unsigned whole; float value; } both = {(unsigned)bits << 16};
    return both.value;
}

__device__ inline Bits rounded(float value) {
    union { float value; unsigned whole; } both = {value};
    return (both.whole + 0x7FFF + (both.whole >> 16 & 1)) >> 16;
}

template <int D> __device__ inline float dot(const Bits *q, const Bits *k) {
    float sum = 0;
    for (int d = 0; d < D; d++) sum += widened(q[d]) * widened(k[d]);
    return sum;
}

// Put (value, block) into a list that descends; of equal ones the later block comes first.
__device__ inline void keep(float *best, int *kept, float value, int block) {
    int place = KEPT;
    while (place > 0 && value >= best[place - 1]) {
        if (place < KEPT) {
            best[place] = best[place - 1];
            kept[place] = kept[place - 1];
        }
        place--;
    }
    if (place < KEPT) {
        best[place] = value;
        kept[place] = block;
    }
}

template <int D> __global__ void nsa_naive(const Bits *qs, const Bits *ks, const Bits *vs,
                                           Bits *out, long rows, int S, float scale) {
    long row = BLOCK_INDEX * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    int t = row % S;
    const Bits *q = qs + row * D, *k = ks + (row - t) * D, *v = vs + (row - t) * D;

    float best[KEPT];
    int kept[KEPT];
    for (int n = 0; n < KEPT; n++) best[n] = -INFINITY, kept[n] = -1;
    for (int block = 0; block <= t / BLOCK; block++) {
        int first = block * BLOCK, end = first + BLOCK < t + 1 ? first + BLOCK : t + 1;
        float sum = 0;
        for (int s = first; s < end; s++) sum += dot<D>(q, k + (long)s * D);
        keep(best, kept, sum / (end - first), block);
    }

    float total[D], weight = 0, top = -INFINITY;
    for (int d = 0; d < D; d++) total[d] = 0;
    for (int n = -1; n < KEPT; n++) {
        if (n >= 0 && kept[n] < 0) continue;
        int first = n < 0 ? t - WINDOW + 1 : kept[n] * BLOCK;
        for (int s = first < 0 ? 0 : first; s <= t && s < first + BLOCK; s++) {
            if (n >= 0 && s > t - WINDOW) continue; // the window has had it
            float score = dot<D>(q, k + (long)s * D) * scale;
            float highest = score > top ? score : top;
            float shrink = expf(top - highest), share = expf(score - highest);
            for (int d = 0; d < D; d++)
                total[d] = total[d] * shrink + share * widened(v[(long)s * D + d]);
            weight = weight * shrink + share;
            top = highest;
        }
    }
    for (int d = 0; d < D; d++) out[row * D + d] = rounded(total[d] / weight);
}

template <int D> void run(const Bits *q, const Bits *k, const Bits *v, Bits *out, long rows, int S,
                          float scale, long stream) {
#ifdef __CUDACC__
    long blocks = (rows + THREADS - 1) / THREADS;
    nsa_naive<D><<<blocks, THREADS, 0, (cudaStream_t)stream>>>(q, k, v, out, rows, S, scale);
#else
    for (BLOCK_INDEX = 0; BLOCK_INDEX < rows; BLOCK_INDEX++)
        nsa_naive<D>(q, k, v, out, rows, S, scale);
#endif
}

extern "C" int launch(long q, long k, long v, long out, long rows, int S, int D, float scale,
                      long stream) {
    auto chosen = D == 64 ? run<64> : run<128>;
    chosen((Bits *)q, (Bits *)k, (Bits *)v, (Bits *)out, rows, S, scale, stream);
#ifdef __CUDACC__
    return cudaGetLastError();
#else
    return 0;
#endif
}
"""
BINDING = """
#include <pybind11/pybind11.h>

extern "C" int launch(long q, long k, long v, long out, long rows, int S, int D, float scale,
                      long stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""


def _on_gpu():
    bare = {"no_implicit_headers": True}  # newer torch; an older one adds its headers, and is slower
    known = inspect.signature(load_inline).parameters
    return load_inline(
        name="nsa_naive",
        cpp_sources=[BINDING],
        cuda_sources=[KERNEL],
        **{name: value for name, value in bare.items() if name in known},
    ).launch


def _rehearsed():
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "nsa.cpp"), Path(folder, "nsa.so")
        source.write_text(KERNEL)
        flags = ["-O2", "-shared", "-fPIC", "-D__global__="]
        subprocess.run(["g++", *flags, str(source), "-o", str(library)], check=True, timeout=120)
        function = ctypes.CDLL(str(library)).launch
    number, size = ctypes.c_long, ctypes.c_int
    function.argtypes = [*[number] * 5, size, size, ctypes.c_float, number]
    return function


launch = _on_gpu() if torch.cuda.is_available() else _rehearsed()


def attend(q, k, v):
    """The output for contiguous (B, H, S, D) bfloat16 tensors."""
    B, H, S, D = q.shape
    out = torch.empty_like(q)
    stream = torch.cuda.current_stream().cuda_stream if q.is_cuda else 0
    places = (tensor.data_ptr() for tensor in (q, k, v, out))
    code = launch(*places, B * H * S, S, D, D**-0.5, stream)
    if code:
        raise RuntimeError(f"the launch failed: CUDA error {code}")
    return out
