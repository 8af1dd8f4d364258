"""Four launches: sort the visits by expert, gate and up with SwiGLU, down, weighted sum.

`moe.cu` holds the kernels. A visit is a token at one of its experts, shared ones included, so that
everything is one grouped product:

1. `glm_sort_visits`, one block: counts, begins and an order of the visits by expert.
2. `glm_hidden`: tiles of 32, 64 or 128 visits and 64 columns of the hidden layer. Rows of x are
   gathered by the order; half of a warp's columns are gate's and half up's, so SwiGLU happens in
   registers. Three steps of 64 elements are on their way by `cp.async`, products are `mma.sync`.
3. `glm_results`: the same tiles times w2, one result a visit in bfloat16.
4. `glm_combine`: the sum of a token's results by their weights in float32, rounded once.

Blocks that share columns of weights follow each other, so that an expert's weights are read from
memory about once. Tiles are as tall as an expert has visits on average: with few tokens the call is
bound by the weights (13 GB at 512 tokens, 0.45 GB at one), and empty rows would only cost products.

Never timed yet. Bound by `mma.sync`, about 60% of the peak of `wgmma`, for many tokens: 4096 are
1.9 TFLOP. To try first: `wgmma` with tiles of 128 x 256, TALL by expert instead of by call.

Needs a GPU: on a machine without one the import fails. The project's tests run the kernels over a
stand-in for the device.
"""

import inspect
from pathlib import Path

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

BINDING = """
#include <pybind11/pybind11.h>

extern "C" int launch(long x, long ids, long weights, long w1, long w2, long w1_shared,
                      long w2_shared, long scratch, long hidden, long results, long y, int T, int E,
                      int top_k, int n_shared, int H, int I, int tall, long stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""
BARE = {"no_implicit_headers": True}  # newer torch; an older one adds its headers, and is slower
KNOWN = inspect.signature(load_inline).parameters

_module = load_inline(
    name="glm_fused_moe_oracle",
    cpp_sources=[BINDING],
    cuda_sources=[Path(__file__).with_name("moe.cu").read_text("utf-8")],
    extra_cuda_cflags=["-O3", "-std=c++17"],
    **{name: value for name, value in BARE.items() if name in KNOWN},
)
_launch = _module.launch


class Model(nn.Module):
    """``forward(x, expert_ids, expert_weights)``: (T, H), (T, top_k) int64, (T, top_k)."""

    def __init__(self, T, E, top_k, n_shared, H, I):
        super().__init__()
        if H % 128 or I % 64:
            raise ValueError(f"H and I are multiples of 128 and 64 here, not {H} and {I}")
        self.sizes = T, E, top_k, n_shared, H, I
        for name, count, size in (("routed", E, (2 * I, H)), ("shared", n_shared, (2 * I, H))):
            empty = torch.empty(count, *size, dtype=torch.bfloat16)
            self.register_parameter(f"w1_{name}", nn.Parameter(empty))
            empty = torch.empty(count, H, I, dtype=torch.bfloat16)
            self.register_parameter(f"w2_{name}", nn.Parameter(empty))
        self._scratch = {}  # by device and stream

    def forward(self, x, expert_ids, expert_weights):
        T, E, top_k, n_shared, H, I = self.sizes
        device = x.get_device()
        stream = torch.cuda.current_stream(device).cuda_stream
        if (device, stream) not in self._scratch:
            visits = T * (top_k + n_shared)
            plan = torch.empty(visits + 2 * (E + n_shared + 1), dtype=torch.int32, device=x.device)
            self._scratch[device, stream] = plan, x.new_empty(visits, I), x.new_empty(visits, H)
        plan, hidden, results = self._scratch[device, stream]
        y = torch.empty_like(x)
        tensors = (x, expert_ids, expert_weights, self.w1_routed, self.w2_routed, self.w1_shared)
        tensors += (self.w2_shared, plan, hidden, results, y)
        code = _launch(*(t.data_ptr() for t in tensors), *self.sizes, tall(T, E, top_k), stream)
        if code:
            raise RuntimeError(f"the launch failed: CUDA error {code}")
        return y


def tall(T, E, top_k):
    """Rows of a tile: about what an expert has."""
    mean = T * top_k / E
    return 32 if mean <= 32 else 64 if mean <= 64 else 128
