"""CUDA C++, built by nvcc through torch at import.

Only what it needs is included: all of torch's headers would take a minute to compile.
"""

import inspect

import torch
from torch.utils.cpp_extension import load_inline

KERNEL = """
#include <cuda_runtime.h>

__global__ void scaled_add(const float *x, float *y, float a, float b, long n) {
    long at = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (at < n) y[at] = a * x[at] + b;
}

int launch(long x, long y, float a, float b, long n, long stream) {
    scaled_add<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>((float *)x, (float *)y, a, b, n);
    return cudaGetLastError();
}
"""
BINDING = """
#include <pybind11/pybind11.h>

int launch(long x, long y, float a, float b, long n, long stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""
BARE = {"no_implicit_headers": True}  # newer torch; an older one adds its headers, and is slower
KNOWN = inspect.signature(load_inline).parameters

_module = load_inline(
    name="qualifying_scaled_add",
    cpp_sources=[BINDING],
    cuda_sources=[KERNEL],
    **{name: value for name, value in BARE.items() if name in KNOWN},
)


def scaled_add(x, a, b):
    """y = a x + b."""
    y = torch.empty_like(x)
    stream = torch.cuda.current_stream().cuda_stream
    code = _module.launch(x.data_ptr(), y.data_ptr(), a, b, x.numel(), stream)
    if code:
        raise RuntimeError(f"the launch failed: CUDA error {code}")
    return y
