"""Decoding of Qwen3 blocks: many steps in one persistent cooperative kernel (`decode.cu`).

It needs a GPU of Hopper's or the data centre Blackwell's shared memory with at least 128 SMs (bulk
copies, 216 KB a block, all blocks at once), and there is nothing to run without one: on a CPU this
cannot be rehearsed, `naive` can.

What bounds it, on an H200 (to be measured): 128 blocks stream 31.5 MB of weights a layer at perhaps
4.2 TB/s, 7.5 us, while they meet five times, 1.2 us each, with 0.4 to 1 us of arithmetic from shared
memory between the meetings; so about 12 us a layer and 50 us a step plus the time of the caches.
Expected milliseconds a call: 2048 x 64 3.3, 8192 x 64 5, 32768 x 32 6, 131072 x 16 9; short contexts
are bound by the meetings, long ones by memory. To tune: `CHUNKS` (steps a launch: the noise of one
is drawn while the one before runs), and in `decode.cu` `UNROLL` (rows under way), `AHEAD` (bytes of
the caches asked into L2 ahead), the cache hint in `bulk_load`. Products by tensor cores would save
some of the arithmetic: each phase has 32 to 48 rows of 1024 a block.
"""

import functools
import pathlib

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CHUNKS = (4, 12, 48)  # steps of the first launches; then the last again and again

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
BINDING = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
extern "C" const char *decode(const unsigned long long *, int, int, int, int, void *);
extern "C" int scratch_bytes();
int scratch() { return scratch_bytes(); }
void launch(const std::vector<unsigned long long> &at, int layers, int start, int steps, int room) {
    void *stream = c10::cuda::getCurrentCUDAStream().stream();
    const char *told = decode(at.data(), layers, start, steps, room, stream);
    TORCH_CHECK(!*told, "the launch failed: ", told);
}
"""


class Block(nn.Module):
    """The weights of one layer."""

    def __init__(self):
        super().__init__()
        for name, size in {**NORMS, **MATRICES}.items():
            setattr(self, name, nn.Parameter(torch.zeros(size, dtype=torch.bfloat16)))


class Model(nn.Module):
    """The weights, and scratch for launches on one stream."""

    def __init__(self, num_layers=4, max_seq=4096):
        super().__init__()
        self.max_seq = max_seq
        self.blocks = nn.ModuleList(Block() for _ in range(num_layers))
        self.scratch = None

    @property
    def device(self):
        """Where the weights are."""
        return self.blocks[0].q_proj.device

    def weights(self):
        """Addresses of each layer, in the order of the kernel's `Layer`."""
        return [[getattr(block, name).data_ptr() for name in ORDER] for block in self.blocks]


@functools.cache
def built():
    """The extension."""
    source = pathlib.Path(__file__).with_name("decode.cu").read_text()
    return load_inline(
        "megaqwen_oracle",
        BINDING,
        source,
        functions=["launch", "scratch"],
        extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
    )


@functools.cache
def rates(device):
    """Radians a position, of each pair of elements."""
    return 1e4 ** (-torch.arange(0, 128, 2, dtype=torch.float64, device=device) / 128)


def prefill(model, ctx_len, seed):
    """Hidden (1024,), and k and v of each layer (8, max_seq, 128), from position 0."""
    size = (8, model.max_seq, 128)
    k, v = (
        [torch.zeros(size, dtype=torch.bfloat16, device=model.device) for _ in model.blocks]
        for _ in range(2)
    )
    hidden = torch.randn(1024, generator=torch.Generator().manual_seed(seed))
    hidden = hidden.to(model.device, torch.bfloat16)
    return decode(model, hidden, k, v, 0, ctx_len, seed + 1), k, v


def decode_steps(model, hidden, k, v, start_pos, n, seed):
    """The hidden after `n` steps; the caches get their rows in place."""
    return decode(model, hidden, k, v, start_pos, n, seed + 2)


def run(model, ctx_len, n, seed):
    """Prefill, then decode."""
    hidden, k, v = prefill(model, ctx_len, seed)
    return decode_steps(model, hidden, k, v, ctx_len, n, seed)


def decode(model, hidden, k, v, start, n, noise_seed):
    """Some launches, each with the noise of its steps."""
    device, room = model.device, k[0].shape[1]
    if model.scratch is None:
        model.scratch = torch.empty(built().scratch(), dtype=torch.uint8, device=device)
    layers = []
    for own, keys, values in zip(model.weights(), k, v, strict=True):
        if not (keys.is_contiguous() and values.is_contiguous()):
            raise ValueError("caches are (8, max_seq, 128), contiguous")
        layers += [*own, keys.data_ptr(), values.data_ptr()]
    rng = torch.Generator().manual_seed(noise_seed)
    hidden = hidden.contiguous()
    done = 0
    for steps in chunks(n):
        drawn = torch.empty(steps, 1024, pin_memory=True).normal_(generator=rng)
        noise = drawn.to(device, non_blocking=True)
        out = torch.empty_like(hidden)
        ends = [t.data_ptr() for t in (hidden, noise, rates(device), out, model.scratch)]
        built().launch([*layers, *ends], len(k), start + done, steps, room)
        hidden, done = out, done + steps
    return hidden


def chunks(n):
    """Steps of each launch."""
    place = 0
    while n > 0:
        steps = min(CHUNKS[min(place, len(CHUNKS) - 1)], n)
        yield steps
        n, place = n - steps, place + 1
