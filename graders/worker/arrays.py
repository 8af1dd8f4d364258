"""Inputs as a submission gets them and outputs as it gives them, on a CPU and on a GPU.

Leaves of outputs have paths: ``y`` is a key of a returned dict, ``1`` a place in a returned tuple,
``state.k`` a key or place one level down. A lone array is the one leaf that the task declares.
"""

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

BLOCKS = 6  # of a size that are dirtied: allocators hand the latest out first
FROM_THE_HEAP = 24 << 20
"""Freeing a mapped block raises glibc's threshold for mapping to its size, and that for giving the
end of the heap back to twice that (mallopt(3), M_MMAP_THRESHOLD; at most 32 MB)."""
SMALL = 1 << 20  # bytes up to which each size is dirtied several times: holes are filled first


def leaf(result: Any, path: str, *, alone: bool) -> Any:
    """What lies at ``path`` of a result; ``alone`` when the task declares no other leaf.

    Raises LookupError where there is nothing.
    """
    if isinstance(result, dict) and path in result:
        return result[path]
    at = result
    for part in path.split(".", 1):
        if isinstance(at, dict) and part in at:
            at = at[part]
        elif isinstance(at, (tuple, list)) and part.isdigit() and int(part) < len(at):
            at = at[int(part)]
        elif alone and result is not None and not isinstance(result, (dict, tuple, list)):
            return result
        else:
            raise LookupError(f"no output {path!r} in what was returned, a {type(result).__name__}")
    return at


def paths(result: Any) -> Iterator[str]:
    """The paths of all leaves of a result, two levels at most."""
    for name, value in _items(result):
        below = [f"{name}.{part}" for part, _ in _items(value)]
        yield from below or [name]


def _items(result: Any) -> list[tuple[str, Any]]:
    if isinstance(result, dict):
        return [(str(name), value) for name, value in result.items()]
    if isinstance(result, (tuple, list)):
        return [(str(n), value) for n, value in enumerate(result)]
    return []


def _blocks(sizes: list[int]) -> list[int]:
    """Sizes of the blocks to dirty, largest first: of outputs, their sum, and powers of two."""
    wanted = {sum(sizes), *sizes, *(1 << n for n in range(6, 23))}
    return [
        size
        for size in sorted(wanted - {0}, reverse=True)
        for _ in range(BLOCKS if size <= SMALL else 1)
    ]


class HostArrays:
    """CPU tasks: inputs are views of the mapping, outputs anything NumPy can read."""

    device = "cpu"

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}

    def put(self, array: Any, key: str = "", _raw: str = "") -> Any:
        """The input as the submission gets it: the same object again for the same key."""
        self._given[key] = array
        return array

    def own(self, array: Any, _raw: str) -> Any:
        """A weight: a copy that outlives its mapping."""
        return array.copy()

    def forget(self) -> None:
        """Let go of the inputs given so far, so that their objects can be used again."""
        self._given = {}

    def after(self, key: str) -> Any:
        """An input as it is now."""
        return self._given[key]

    def write_back(self) -> None:
        """Let the referee see what became of the inputs: here it reads their very memory."""

    def fetch(self, value: Any) -> Any:
        """The output as a host array."""
        return np.ascontiguousarray(np.asarray(value)).reshape(np.shape(value))

    def aliases(self, value: Any) -> bool:
        """Whether an output lies in the memory of an input."""
        held = value if isinstance(value, np.ndarray) else np.asarray(value)
        return any(np.may_share_memory(held, array) for array in self._given.values())

    def dirty(self, sizes: list[int], byte: int) -> None:
        """Leave blocks of ``byte`` on the heap for a careless ``np.empty`` to find."""
        first = np.empty(FROM_THE_HEAP, np.uint8)
        del first  # from now on smaller blocks come from the heap and stay there when freed
        blocks = [np.full(size, byte, np.uint8) for size in _blocks(sizes)]
        del blocks

    def synchronise(self) -> None:
        """Nothing runs asynchronously."""

    def joined(self) -> None:
        """Nothing runs asynchronously."""


class TensorArrays:
    """Tasks whose interface is torch's: the same arrays as tensors, here on a CPU."""

    device = "cpu"

    def __init__(self) -> None:
        self.torch = torch = importlib.import_module("torch")
        self._given: dict[str, tuple[Any, Any, Any]] = {}
        bits = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
        self._bits = {getattr(torch, raw): getattr(torch, as_) for raw, as_ in bits.items()}
        self._kinds = {"float8_e4m3": torch.float8_e4m3fn}  # the others are called alike

    def put(self, array: Any, key: str = "", raw: str = "") -> Any:
        """Copy one input to the device; strides are kept.

        For the same key it is the same tensor again, overwritten in a way that leaves its address
        and its version counter as they were (``data`` counts apart).
        """
        torch = self.torch
        host = torch.from_numpy(array)
        if key in self._given:
            _, held, ours = self._given[key]
        else:
            held = torch.empty_strided(
                host.shape, host.stride(), dtype=host.dtype, device=self.device
            )
            held = held.view(self._kind(raw)) if raw else held
            ours = held.data.view(host.dtype)  # the same memory, whatever becomes of `held`
        ours.copy_(host)
        self._given[key] = (array, held, ours)
        return held

    def _kind(self, raw: str) -> Any:
        return self._kinds.get(raw) or getattr(self.torch, raw)

    def own(self, array: Any, raw: str) -> Any:
        """A weight: a copy of its real dtype that outlives its mapping."""
        held = self.torch.from_numpy(array).to(self.device, copy=True)
        return held.view(self._kind(raw)) if raw else held

    def from_device(self, memory: Any, fd: int, frame: Any) -> dict[str, Any]:
        """Weights in device memory of the referee's, as copies."""
        torch = self.torch
        torch.zeros(1, device=self.device)  # the context is current from here on
        block = memory.Driver().imported(fd, frame["block"])
        flat = torch.as_tensor(block, device=self.device)
        found = {}
        for leaf in frame["weights"]:
            kind, size = getattr(torch, leaf["dtype"]), 1
            for length in leaf["shape"]:
                size *= length
            part = flat[leaf["offset"] : leaf["offset"] + size * kind.itemsize]
            found[leaf["name"]] = part.view(kind).view(leaf["shape"]).clone()
        torch.cuda.synchronize()
        block.release()
        return found

    def forget(self) -> None:
        """Free the inputs given so far; the allocator hands their addresses out again."""
        self._given = {}

    def after(self, key: str) -> Any:
        """An input as it is now."""
        return self._given[key][2]

    def write_back(self) -> None:
        """Copy the inputs back to where they came from: the referee sees what changed."""
        for array, _, ours in self._given.values():
            array[...] = ours.cpu().numpy()

    def fetch(self, value: Any) -> Any:
        """Copy one output back, on the current stream; types that NumPy lacks as their raw bits."""
        torch = self.torch
        host = torch.as_tensor(value).detach().contiguous().cpu()
        return (host.view(self._bits[host.dtype]) if host.dtype in self._bits else host).numpy()

    def aliases(self, value: Any) -> bool:
        """Whether an output lies in the storage of an input."""
        if not isinstance(value, self.torch.Tensor) or not value.numel():
            return False
        at = value.untyped_storage().data_ptr()
        return any(at == ours.untyped_storage().data_ptr() for _, _, ours in self._given.values())

    def dirty(self, sizes: list[int], byte: int) -> None:
        """Leave blocks of ``byte`` on the heap, which torch's CPU allocator shares with NumPy's."""
        HostArrays.dirty(self, sizes, byte)  # type: ignore[arg-type]

    def synchronise(self) -> None:
        """Nothing runs asynchronously."""

    def joined(self) -> None:
        """Nothing runs asynchronously."""


class CudaArrays(TensorArrays):
    """GPU tasks: the same arrays as CUDA tensors."""

    device = "cuda"

    def dirty(self, sizes: list[int], byte: int) -> None:
        """Fill what the caching allocator will hand out: it gives back what it held before."""
        torch = self.torch
        torch.cuda.empty_cache()
        blocks = [
            torch.full((size,), byte, dtype=torch.uint8, device=self.device)
            for size in _blocks(sizes)
        ]
        torch.cuda.synchronize()
        del blocks

    def synchronise(self) -> None:
        """Wait for the device."""
        self.torch.cuda.synchronize()

    def joined(self) -> None:
        """Wait for the stream that is current, as a caller does who reads the output on it."""
        self.torch.cuda.current_stream().synchronize()
