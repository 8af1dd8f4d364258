"""An adapter of our own in place of a task's: what one GPU reaches, by the libraries of its vendor.

It runs where submissions run, on the same interpreter, torch, driver and GPU. No submission is in
the process, so its CUDA events can be believed.

Bandwidth: a copy from device memory to device memory of ``BYTES``, far beyond any L2; bytes read
and bytes written both count (after STREAM, McCalpin 1995). Compute: a matrix product of ``SIZE``
cubed, bfloat16 with float32 accumulation, and float32 without TF32, of normal draws: products of
zeros draw less power and run at clocks that no real data sees. Each is the best of ``REPEATS``.
"""

import importlib
import itertools
from collections.abc import Callable
from typing import Any

BYTES = 1 << 30
SIZE = 8192
REPEATS = {"bandwidth": 30, "bfloat16": 30, "float32": 8}
WARM_UPS = 3


def setup(_entries: Any, _params: Any) -> Any:
    """The module torch, with TF32 off."""
    torch = importlib.import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def run(_entries: Any, torch: Any, _inputs: Any) -> dict[str, Any]:
    """``bandwidth`` in 1e9 byte/s, ``bfloat16`` and ``float32`` in 1e9 FLOP/s."""
    found = {"bandwidth": _bandwidth(torch)}
    for name in ("bfloat16", "float32"):
        torch.cuda.empty_cache()
        found[name] = _gflops(torch, name)
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in found.items()}


def _bandwidth(torch: Any) -> float:
    source = torch.ones(BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * BYTES / _best_s(torch, "bandwidth", lambda: target.copy_(source)) / 1e9


def _gflops(torch: Any, name: str) -> float:
    a, b = (_draw(torch, name, seed) for seed in (1, 2))
    out = torch.empty_like(a)
    return 2 * SIZE**3 / _best_s(torch, name, lambda: torch.matmul(a, b, out=out)) / 1e9


def _draw(torch: Any, name: str, seed: int) -> Any:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    drawn = torch.randn(SIZE, SIZE, generator=generator, device="cuda")
    return drawn.to(getattr(torch, name))


def _best_s(torch: Any, name: str, work: Callable[[], object]) -> float:
    """Seconds of the fastest repeat, of those that were queued one behind the other."""
    for _ in range(WARM_UPS):
        work()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS[name] + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    pairs = itertools.pairwise(marks)
    return min(float(begin.elapsed_time(end)) for begin, end in pairs) / 1e3
