"""Arrays in sealed memfds, and the leaves that describe them on the wire.

A memfd is sealed against shrinking before the worker gets it, so that the referee can never be
killed by reading behind its end; outputs are read with ``pread``, never through a mapping.
"""

import fcntl
import math
import mmap
import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graders.worker.wire import DTYPES

ALIGN = 64
GAP_BYTE = 0xFF
"""Fills what lies between the elements of a strided input: read as a float, it is NaN."""

MAX_DIMS = 32
_BEYOND = 1 << 62  # no length in bytes is so large

Leaf = dict[str, Any]


class BadLeaf(Exception):
    """A described output that cannot be one: unknown dtype, negative size, outside the room."""


@dataclass(frozen=True)
class Layout:
    """Where each array lies in one memfd of ``size`` bytes."""

    leaves: tuple[Leaf, ...]
    size: int


def layout(arrays: Mapping[str, np.ndarray]) -> Layout:
    """Place the arrays one behind the other, strides kept."""
    leaves: list[Leaf] = []
    end = 0
    for name, array in arrays.items():
        low, high = _extent(array)
        start = _aligned(end)
        leaves.append(
            {
                "name": name,
                "dtype": str(array.dtype),
                "shape": list(array.shape),
                "strides": list(array.strides),
                "offset": start - low,
            }
        )
        end = start + (high - low)
    return Layout(tuple(leaves), max(_aligned(end), mmap.PAGESIZE))


def room_for(outputs: Mapping[str, np.ndarray]) -> int:
    """Bytes granted for outputs: eight an element, so that a wrong dtype is told as such."""
    return sum(_aligned(max(array.nbytes, 8 * array.size)) for array in outputs.values()) + (
        1 << 12
    )


class Buffer:
    """One memfd whose size is sealed."""

    def __init__(self, size: int, name: str) -> None:
        self.size = size
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        fcntl.fcntl(
            self.fd,
            fcntl.F_ADD_SEALS,
            fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL,
        )
        self._map: mmap.mmap | None = None

    def view(self, leaf: Leaf) -> np.ndarray:
        """The array that ``leaf`` describes, over the referee's own mapping."""
        if self._map is None:
            self._map = mmap.mmap(self.fd, self.size)
        return np.ndarray(
            tuple(leaf["shape"]),
            leaf["dtype"],
            buffer=self._map,
            offset=leaf["offset"],
            strides=leaf["strides"],
        )

    def fill(self, byte: int) -> None:
        """Set every byte."""
        if self._map is None:
            self._map = mmap.mmap(self.fd, self.size)
        np.frombuffer(self._map, np.uint8)[:] = byte

    def write(self, placed: Layout, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the arrays to their places."""
        if any(not array.flags.c_contiguous for array in arrays.values()):
            self.fill(GAP_BYTE)
        for leaf in placed.leaves:
            self.view(leaf)[...] = arrays[leaf["name"]]

    def changed(self, placed: Layout, arrays: Mapping[str, np.ndarray]) -> list[str]:
        """Names of the arrays whose bytes are no longer those that were written."""
        return [
            leaf["name"]
            for leaf in placed.leaves
            if not _same_bytes(self.view(leaf), arrays[leaf["name"]])
        ]

    def read(self, size: int, offset: int) -> bytearray:
        """A private copy of ``size`` bytes."""
        data = bytearray(size)
        done = 0
        while done < size:
            done += os.preadv(self.fd, [memoryview(data)[done:]], offset + done)
        return data

    def close(self) -> None:
        """Give the descriptor back; a mapping ends with its last array."""
        self._map = None
        os.close(self.fd)


class CallMemory:
    """The memory of one call: inputs written, outputs empty, not yet shown to a worker."""

    def __init__(self, inputs: Mapping[str, np.ndarray], room: int) -> None:
        self.placed = layout(inputs)
        self.inputs = Buffer(self.placed.size, "inputs")
        self.outputs = Buffer(room, "outputs")
        self.inputs.write(self.placed, inputs)
        self.outputs.fill(0)  # its pages exist before the clock starts

    @property
    def size(self) -> int:
        """Bytes of both."""
        return self.inputs.size + self.outputs.size

    def close(self) -> None:
        """Give the memory back."""
        self.inputs.close()
        self.outputs.close()


def read_outputs(buffer: Buffer, leaves: object) -> dict[str, np.ndarray]:
    """Private copies of the outputs that the worker says there are, by name. Raises BadLeaf.

    Together they are no larger than the buffer, so that a claim cannot fill the referee's memory.
    """
    if not isinstance(leaves, list):
        raise BadLeaf("no list of outputs")
    found: dict[str, np.ndarray] = {}
    left = buffer.size
    for leaf in leaves:
        name = leaf.get("name") if isinstance(leaf, dict) else None
        if not isinstance(name, str) or name in found:
            raise BadLeaf(f"no array, or one of a name given before: {reprlib.repr(leaf)}")
        found[name] = read_output(buffer, leaf)
        left -= found[name].nbytes
        if left < 0:
            raise BadLeaf(f"outputs that overlap: together beyond their {buffer.size} bytes")
    return found


def read_output(buffer: Buffer, leaf: Leaf) -> np.ndarray:
    """A private copy of the output that the worker says lies at ``leaf``. Raises BadLeaf."""
    try:
        name, shape, offset = leaf["dtype"], leaf["shape"], leaf["offset"]
        if name not in DTYPES or type(shape) is not list or len(shape) > MAX_DIMS:
            raise ValueError
        if any(type(n) is not int or not 0 <= n < _BEYOND for n in (*shape, offset)):
            raise ValueError  # a bool is an int, and infinity a float
        dtype = np.dtype(name)
        size = math.prod(shape) * dtype.itemsize
        if offset + size > buffer.size:
            raise ValueError
        return np.frombuffer(buffer.read(size, offset), dtype).reshape(shape)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        told = f"no array in {buffer.size} bytes: {reprlib.repr(leaf)}"
        raise BadLeaf(told) from error


def _extent(array: np.ndarray) -> tuple[int, int]:
    """First and last byte (exclusive) of an array, from its first element."""
    if array.size == 0:
        return 0, 0
    reach = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    low = sum(step for step in reach if step < 0)
    high = sum(step for step in reach if step > 0)
    return low, high + array.itemsize


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def _same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    left, right = np.ascontiguousarray(one), np.ascontiguousarray(other)
    return bool(np.array_equal(left.reshape(-1).view(np.uint8), right.reshape(-1).view(np.uint8)))
