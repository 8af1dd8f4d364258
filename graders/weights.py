"""Weights on their way to a worker: in a memfd, or as device memory where they lie on a GPU."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from graders.buffers import Buffer, layout
from graders.pacing.memory import memory_of
from graders.tensors import is_tensor
from tasks.tensors import raw_of

ALIGN = 512  # bytes, as torch places its own tensors


@dataclass(frozen=True)
class Sent:
    """A descriptor and what a ``setup`` frame says of it."""

    fd: int
    described: dict[str, Any]


@contextmanager
def sent(weights: Mapping[str, Any], raw: Mapping[str, str], device: str) -> Iterator[Sent]:
    """The weights in memory of their own, until the worker has answered."""
    if any(is_tensor(value) for value in weights.values()):
        with _on_device(weights, device) as found:
            yield found
        return
    placed = layout(weights)
    leaves = [{**leaf, "raw": raw_of(raw, leaf["name"])} for leaf in placed.leaves]
    buffer = Buffer(placed.size, "weights")
    try:
        buffer.write(placed, weights)
        yield Sent(buffer.fd, {"weights": leaves})
    finally:
        buffer.close()


@contextmanager
def _on_device(weights: Mapping[str, Any], device: str) -> Iterator[Sent]:
    leaves: list[dict[str, Any]] = []
    end = 0
    for name, value in weights.items():
        kind = str(value.dtype).removeprefix("torch.")
        leaves.append({"name": name, "dtype": kind, "shape": list(value.shape), "offset": end})
        end += -(-value.nbytes // ALIGN) * ALIGN
    memory = memory_of(device)
    block = memory.allocate(max(end, ALIGN))
    try:
        flat = block.array("uint8")
        for leaf, value in zip(leaves, weights.values(), strict=True):
            part = flat[leaf["offset"] : leaf["offset"] + value.nbytes]
            memory.viewed(part, leaf["dtype"]).view(value.shape).copy_(value)
        memory.settle()
        yield Sent(block.fd, {"weights": leaves, "block": block.size})
    finally:
        block.release()
