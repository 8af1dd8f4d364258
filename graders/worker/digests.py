"""Keyed digests that bind a worker to its outputs: on a GPU one kernel, on the host BLAKE2b.

Copied into the worker, and the referee's own way to digest what was handed over. Standard library.
"""

import hashlib
from ctypes import Structure, addressof, c_int, c_uint64, c_void_p
from typing import Any

MOST_LEAVES, LANES = 24, 256
BLOCKS = 256
BYTES_A_BLOCK = 32 << 10


class Leaf(Structure):
    """One array of a digest: address and bytes."""

    _fields_ = [("at", c_uint64), ("bytes", c_uint64)]


class Leaves(Structure):
    """All arrays of a digest, as the kernel takes them."""

    _fields_ = [("leaf", Leaf * MOST_LEAVES), ("count", c_int)]


def blocks_for(size: int) -> int:
    """Blocks of a digest over ``size`` bytes; a part of what the digest is."""
    return max(1, min(BLOCKS, size // BYTES_A_BLOCK))


class DeviceDigest:
    """The digest kernel, ready to launch (``graders/pacing/digest.cu``)."""

    def __init__(self, driver: Any, ptx: str, done: int) -> None:
        """``done`` is the device's address of the line that it writes."""
        self._scratch = driver.allocate(BLOCKS * 16 + 16)  # fresh memory is zero
        self._leaves, self._k0, self._k1 = Leaves(), c_uint64(), c_uint64()
        self._number = c_uint64()
        self._held = [
            self._leaves,
            self._k0,
            self._k1,
            c_uint64(self._scratch.address),
            c_uint64(self._scratch.address + BLOCKS * 16),
            c_uint64(done),
            self._number,
        ]
        pointers = (c_void_p * len(self._held))(*(addressof(held) for held in self._held))
        self._launch = driver.launcher(driver.kernel(ptx, "digest"), pointers)

    def __call__(
        self, arrays: list[tuple[int, int]], key: tuple[int, int], number: int, stream: int
    ) -> None:
        """Launch over (address, bytes) pairs, ``MOST_LEAVES`` at most. Raises RuntimeError."""
        if len(arrays) > MOST_LEAVES:
            raise RuntimeError(f"a digest is of {MOST_LEAVES} arrays at most, not {len(arrays)}")
        self._k0.value, self._k1.value = key
        self._number.value = number
        self._leaves.count = len(arrays)
        total = 0
        for n, (address, size) in enumerate(arrays):  # IndexError beyond the last place
            leaf = self._leaves.leaf[n]
            leaf.at, leaf.bytes = address, size
            total += size
        if code := self._launch(blocks_for(total), LANES, stream):
            raise RuntimeError(f"the digest could not be launched: CUDA error {code}")


def host_digest(values: list[Any], key: tuple[int, int]) -> tuple[int, int]:
    """Keyed BLAKE2b of the arrays' bytes, 128 bits."""
    word = b"".join(part.to_bytes(8, "little") for part in key)
    total = hashlib.blake2b(key=word, digest_size=16)
    for value in values:
        total.update(value.nbytes.to_bytes(8, "little"))
        total.update(value.reshape(-1).view("uint8"))
    found = total.digest()
    return int.from_bytes(found[:8], "little"), int.from_bytes(found[8:], "little")
