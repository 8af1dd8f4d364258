"""Pools of tensors without a GPU: the referee's side of paced calls, as it is for a device."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graders.worker.digests import host_digest
from tasks.tensors import TensorReference


class TensorBlock:
    """Tensors in place of device memory; nothing is sent, so it has no descriptor."""

    fd = -1

    def __init__(self, size: int) -> None:
        self.size = size
        self._bytes = torch.zeros(size, dtype=torch.uint8)

    def array(self, dtype: str) -> torch.Tensor:
        return self._bytes.view(getattr(torch, dtype))

    def release(self) -> None:
        """Nothing to give back."""


class TensorMemory:
    """`graders.pacing.memory.Memory` by torch's CPU tensors."""

    is_device = True
    torch = torch
    cold_bytes, most_bytes = 1 << 20, 8 << 20
    full: tuple[type[Exception], ...] = (MemoryError,)

    def private(self, size: int, dtype: str) -> torch.Tensor:
        kind = getattr(torch, dtype)
        return torch.zeros(size // kind.itemsize, dtype=kind)

    def has_room(self) -> bool:
        return True

    def give_back(self) -> None:
        """Nothing is kept."""

    def allocate(self, size: int) -> TensorBlock:
        return TensorBlock(size)

    def digest(self, arrays: Sequence[torch.Tensor], key: tuple[int, int]) -> tuple[int, int]:
        flat = [array.contiguous().view(-1).view(torch.uint8).numpy() for array in arrays]
        return host_digest(flat, key)

    def viewed(self, flat: torch.Tensor, dtype: str) -> torch.Tensor:
        return flat.view(getattr(torch, dtype))

    def settle(self) -> None:
        """Nothing is under way."""

    def options(self) -> dict[str, Any]:
        return {}


class HostTensors(TensorReference):
    """A task's reference that draws on the host what it is asked to draw on a GPU."""

    def make_calls(self, shape: Mapping[str, Any], seed: int, device: str) -> Any:
        return super().make_calls(shape, seed, "cpu")

    def make_inputs(self, shape: Mapping[str, Any], seed: int, device: str = "cpu") -> Any:
        made = self.make_calls(shape, seed, device)
        params = dict(made["params"])
        if hasattr(self.module, "make_weights"):
            params["weights"] = self.module.make_weights(dict(shape), seed, "cpu")
        return {"params": params, "calls": made["calls"]}
