"""Memory that the referee shares with a worker for paced calls: on a GPU, or in the host's memfds.

A *block* has a size in bytes and a descriptor to send. ``array`` gives the referee's own view of
its bytes (torch on a GPU, NumPy on the host); ``digest`` is the same function of the same bytes
that the worker's side commits by.
"""

import importlib
import mmap
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from graders import tensors
from graders.buffers import Buffer
from graders.worker import digests, pacer
from graders.worker.device_memory import CudaError, DeviceBlock, Driver

Key = tuple[int, int]


class Block(Protocol):
    """Memory with a descriptor."""

    size: int

    @property
    def fd(self) -> int:
        """To be sent; it stays open until `release`."""
        ...

    def array(self, dtype: str) -> Any:
        """All of it as one flat array."""
        ...

    def release(self) -> None:
        """Give it back. Idempotent."""
        ...


class Memory(Protocol):
    """Where pools and kept outputs lie."""

    is_device: bool
    cold_bytes: int
    """Least size of a pool, so that a window of it is in no cache."""
    most_bytes: int
    """Most that the pools of a chain should take together, and as much again what is kept."""
    full: tuple[type[Exception], ...]
    """What is raised when there is no room."""

    def private(self, size: int, dtype: str) -> Any:
        """A flat array of ``size`` bytes that no worker can have."""
        ...

    def has_room(self) -> bool:
        """Whether a pool of the least size can be had now."""
        ...

    def give_back(self) -> None:
        """Keep no memory for later use."""
        ...

    def allocate(self, size: int) -> Block:
        """A fresh block."""
        ...

    def digest(self, arrays: Sequence[Any], key: Key) -> Key:
        """Of contiguous arrays of this memory."""
        ...

    def viewed(self, flat: Any, dtype: str) -> Any:
        """Bytes as elements."""
        ...

    def settle(self) -> None:
        """Wait until everything written is there for others."""
        ...

    def options(self) -> dict[str, Any]:
        """What a worker needs beside, for its frame."""
        ...


class HostBlock:
    """A sealed memfd and the referee's mapping of it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._buffer = Buffer(size, "pool")
        self._map = mmap.mmap(self._buffer.fd, size)

    @property
    def fd(self) -> int:
        """The memfd."""
        return self._buffer.fd

    def array(self, dtype: str) -> np.ndarray:
        """A view of the mapping."""
        return np.frombuffer(self._map, dtype)

    def release(self) -> None:
        """Close the memfd; the mapping goes with the last array over it."""
        self._buffer.close()


class HostMemory:
    """Blocks in memfds, for CPU workers."""

    is_device = False
    cold_bytes = 8 << 20
    most_bytes = 2 << 20  # chains are short: nothing but rehearsals is timed so
    full: tuple[type[Exception], ...] = (MemoryError,)

    def private(self, size: int, dtype: str) -> np.ndarray:
        """Memory of this process."""
        return np.zeros(size, np.uint8).view(dtype)

    def has_room(self) -> bool:
        """True: host memory is not the submission's to fill."""
        return True

    def give_back(self) -> None:
        """Nothing is kept."""

    def allocate(self, size: int) -> HostBlock:
        """A fresh memfd, zeroed."""
        return HostBlock(size)

    def digest(self, arrays: Sequence[Any], key: Key) -> Key:
        """Keyed BLAKE2b."""
        return digests.host_digest(list(arrays), key)

    def viewed(self, flat: Any, dtype: str) -> Any:
        """A view."""
        return flat.view(dtype)

    def settle(self) -> None:
        """Nothing is under way."""

    def options(self) -> dict[str, Any]:
        """Nothing more."""
        return {}


class GpuBlock:
    """Device memory and its descriptor."""

    def __init__(self, torch: Any, device: int, block: DeviceBlock, size: int) -> None:
        self.size = size
        self._torch, self._device, self._block = torch, device, block
        try:
            self._fd: int | None = block.export()
        except BaseException:
            block.release()
            raise

    @property
    def fd(self) -> int:
        """The exported descriptor."""
        assert self._fd is not None
        return self._fd

    def array(self, dtype: str) -> Any:
        """A tensor over it."""
        flat = self._torch.as_tensor(self._block, device=f"cuda:{self._device}")[: self.size]
        return flat.view(getattr(self._torch, dtype))

    def release(self) -> None:
        """Wait for the device, unmap and close."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            self._torch.cuda.synchronize(self._device)
            self._block.release()


class GpuMemory:
    """Blocks on one GPU, by its UUID. Raises GraderVoid without torch or the GPU.

    Digests are made by one thread at a time: who measures has the lease of the device.
    """

    is_device = True

    def __init__(self, uuid: str) -> None:
        self.torch: Any = tensors.torch()
        self._uuid = uuid
        self.device = self.enter()
        found = self.torch.cuda.get_device_properties(self.device)
        self.capability = f"{found.major}{found.minor}"
        self.cold_bytes = 5 * found.L2_cache_size
        self._driver = Driver(self.device)
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._words = memoryview(self._page).cast("Q")
        done = self._driver.page_locked(self._page) + 8 * pacer.DONE
        self._digest = digests.DeviceDigest(self._driver, compiled(self.capability), done)
        self.most_bytes = found.total_memory // 8
        self.full: tuple[type[Exception], ...] = (CudaError, self.torch.OutOfMemoryError)

    def enter(self) -> int:
        """Make the device and its context this thread's; the device's number."""
        number = tensors.use(self._uuid)
        self.torch.zeros(1, device="cuda")  # makes the context current
        return number

    def private(self, size: int, dtype: str) -> Any:
        """Memory of torch's own allocator, never exported."""
        kind = getattr(self.torch, dtype)
        return self.torch.zeros(size // kind.itemsize, dtype=kind, device="cuda")

    def has_room(self) -> bool:
        """Try it."""
        try:
            self.allocate(self.cold_bytes).release()
        except self.full:
            return False
        return True

    def give_back(self) -> None:
        """Empty torch's cache."""
        self.torch.cuda.empty_cache()

    def allocate(self, size: int) -> GpuBlock:
        """Fresh device memory; what torch only keeps for later is given back for it."""
        try:
            block = self._driver.allocate(size)
        except CudaError:
            self.give_back()
            block = self._driver.allocate(size)
        return GpuBlock(self.torch, self.device, block, size)

    def digest(self, arrays: Sequence[Any], key: Key) -> Key:
        """The digest kernel, in the referee's own context."""
        stream = self.torch.cuda.current_stream(self.device)
        self._digest([(a.data_ptr(), a.nbytes) for a in arrays], key, 1, stream.cuda_stream)
        stream.synchronize()
        return self._words[pacer.DONE + 1], self._words[pacer.DONE + 2]

    def viewed(self, flat: Any, dtype: str) -> Any:
        """A view."""
        return flat.view(getattr(self.torch, dtype))

    def settle(self) -> None:
        """Wait for the device: another context reads next."""
        self.torch.cuda.synchronize(self.device)

    def options(self) -> dict[str, Any]:
        """The digest kernel for the worker's driver to compile."""
        return {"ptx": compiled(self.capability)}


@cache
def compiled(capability: str) -> str:
    """The digest kernel as PTX, by NVRTC. Raises RuntimeError with the compiler's words."""
    nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
    source = (Path(__file__).parent / "digest.cu").read_bytes()
    _, program = nvrtc.nvrtcCreateProgram(source, b"digest.cu", 0, [], [])
    options = [f"--gpu-architecture=compute_{capability}".encode(), b"--std=c++17"]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(code):
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"the digest kernel does not compile: {log.decode()}")
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = b" " * size
    nvrtc.nvrtcGetPTX(program, ptx)
    return str(ptx.rstrip(b"\0"), "ascii")


def memory_of(device: str) -> Memory:
    """The memory for a device: ``cpu``, or a GPU's UUID, which this thread then uses."""
    if device == "cpu":
        return HostMemory()
    found = _gpu(device)
    found.enter()
    return found


def give_back(device: str) -> None:
    """Keep no memory of a GPU for later use; nothing to do where this process uses none."""
    if device != "cpu" and _gpu.cache_info().currsize:
        memory_of(device).give_back()


@cache
def _gpu(uuid: str) -> GpuMemory:
    return GpuMemory(uuid)
