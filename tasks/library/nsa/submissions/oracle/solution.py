"""Flash attention on tensor cores over the blocks that queries have kept, in two launches.

`nsa.cu` holds the kernels:

1. `nsa_block_sums` writes the sum of each whole block's keys, a float32, as three bfloat16 numbers,
   so that products with it are as exact as float32 ones and still run on tensor cores.
2. `nsa_attend` takes 64 or 128 queries of one head. Each warp scores its queries' own block (scores
   of its causal keys, summed) and 32 past blocks at a time (products with their sums); one thread a
   query keeps the best eight in a sorted list in registers. Then blocks of keys and values come from
   the last to the first through two stages of shared memory, only those that a query of the tile
   has kept, and each warp passes by those that none of its 16 queries has. Scores of rows that have
   not kept a block are left out of the softmax; where no row of eight has, exponentials are too.
   The second launch begins while the first one ends and waits for the sums where it needs them.

With random inputs nearly every block is kept by some query of a tile, so the products are those of
dense causal attention (half of the score work), and what the selection saves is exponentials and,
for long sequences, products: about a third of them at 8192.

Never timed yet; expected on an H200, kernels alone: b4_h8_s1024_d64 and b1_h16_s2048_d64 25 to 50 us
(latency: few tiles, then launches), b2_h8_s3000_d64 90 us, b1_h16_s4127_d64 150 us, b1_h8_s8192_d64
250 us, b1_h8_s8191_d128 450 us. Bound by `mma.sync`, which has about 60% of the peak of `wgmma`, and
by exponentials. To tune, at the top of `nsa.cu`: WIDE_FROM, RESIDENT_64, RESIDENT_128 (3 needs 168
registers), WARPS, OVERLAPS. Beyond that: queries gathered by the block that they have kept, partial
results merged afterwards, would do a sixth of the products from about 4000 on.

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

extern "C" int launch(long q, long k, long v, long parts, long out, int heads, int S, int D,
                      long stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""
BARE = {"no_implicit_headers": True}  # newer torch; an older one adds its headers, and is slower
KNOWN = inspect.signature(load_inline).parameters
BLOCK, PARTS = 64, 3

_module = load_inline(
    name="nsa_oracle",
    cpp_sources=[BINDING],
    cuda_sources=[Path(__file__).with_name("nsa.cu").read_text("utf-8")],
    extra_cuda_cflags=["-O3", "-std=c++17"],
    **{name: value for name, value in BARE.items() if name in KNOWN},
)
_launch = _module.launch


class Model(nn.Module):
    """``forward(q, k, v)``: (B, H, S, D) bfloat16."""

    def __init__(self, B, H, S, D):
        super().__init__()
        if D not in (64, 128):
            raise ValueError(f"D is 64 or 128 here, not {D}")
        self.heads, self.S, self.D = B * H, S, D
        self.register_buffer("_dummy", torch.zeros(1, dtype=torch.bfloat16))
        self._parts = {}  # scratch by device and stream

    def forward(self, q, k, v):
        if not (q.is_contiguous() and k.is_contiguous() and v.is_contiguous()):
            q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        device = q.get_device()
        stream = torch.cuda.current_stream(device).cuda_stream
        parts = self._parts.get((device, stream))
        if parts is None:
            size = self.heads * max(self.S // BLOCK, 1) * PARTS * self.D
            parts = self._parts[device, stream] = q.new_empty(size)
        places = q.data_ptr(), k.data_ptr(), v.data_ptr(), parts.data_ptr(), out.data_ptr()
        code = _launch(*places, self.heads, self.S, self.D, stream)
        if code:
            raise RuntimeError(f"the launch failed: CUDA error {code}")
        return out
