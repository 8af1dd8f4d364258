"""Device memory as file descriptors, page-locked pages and one kernel, through the CUDA driver.

Used by the referee (which makes the memory) and copied into the worker (which maps it): standard
library only. Device memory made with ``cuMemCreate`` is exported as a POSIX descriptor, passes over
a Unix socket into any user, process, IPC and network namespace, and is mapped there; no host copy
is made (CUDA driver API, "Virtual Memory Management").
"""

import ctypes
import mmap
from typing import Any

POSIX_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
DEVICE_MAPPED = 2  # CU_MEMHOSTREGISTER_DEVICEMAP


class CudaError(Exception):
    """A call of the driver that failed, by its name."""


class _Location(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("id", ctypes.c_int)]


class _Property(ctypes.Structure):
    """``CUmemAllocationProp`` of cuda.h."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    """``CUmemAccessDesc`` of cuda.h."""

    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class Driver:
    """The driver's functions on the current context of the calling thread.

    ``device`` is its ordinal in this process: a worker sees one GPU only, which is 0.
    """

    def __init__(self, device: int = 0) -> None:
        self._lib = ctypes.CDLL("libcuda.so.1")
        self._device = device

    def call(self, name: str, *arguments: Any) -> None:
        """Raises CudaError, with the driver's own name of the error."""
        code = getattr(self._lib, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._lib.cuGetErrorName(code, ctypes.byref(text))
            raise CudaError(f"{name}: {(text.value or b'unknown error').decode()}")

    def allocate(self, size: int) -> "DeviceBlock":
        """Fresh device memory that can be exported."""
        handle = ctypes.c_uint64()
        rounded = self._rounded(size)
        self.call(
            "cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(rounded), self._property(), 0
        )
        return self._mapped(handle, rounded)

    def imported(self, fd: int, size: int) -> "DeviceBlock":
        """The device memory behind a descriptor; ``size`` as it was asked for."""
        handle = ctypes.c_uint64()
        self.call(
            "cuMemImportFromShareableHandle",
            ctypes.byref(handle),
            ctypes.c_void_p(fd),
            POSIX_DESCRIPTOR,
        )
        return self._mapped(handle, self._rounded(size))

    def page_locked(self, page: mmap.mmap) -> int:
        """The device's address of a page of host memory."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        size = ctypes.c_size_t(len(page))
        self.call("cuMemHostRegister_v2", ctypes.c_void_p(address), size, DEVICE_MAPPED)
        found = ctypes.c_uint64()
        self.call("cuMemHostGetDevicePointer_v2", ctypes.byref(found), ctypes.c_void_p(address), 0)
        return found.value

    def release_page(self, page: mmap.mmap) -> None:
        """Undo `page_locked`."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        self.call("cuMemHostUnregister", ctypes.c_void_p(address))

    def kernel(self, ptx: str, name: str) -> ctypes.c_void_p:
        """A kernel of a module, compiled by the driver for this device."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ptx.encode())
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def launcher(self, function: ctypes.c_void_p, parameters: ctypes.Array[Any]) -> Any:
        """A function ``(blocks, threads, stream)`` that launches with these parameters, quickly."""
        launch = self._lib.cuLaunchKernel
        launch.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]

        def go(blocks: int, threads: int, stream: int) -> int:
            code: int = launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, None)
            return code

        return go

    def _mapped(self, handle: ctypes.c_uint64, size: int) -> "DeviceBlock":
        """Memory at an address; given back where it cannot be mapped."""
        address = ctypes.c_uint64()
        length, none = ctypes.c_size_t(size), ctypes.c_size_t(0)
        access = _Access(_Location(ON_DEVICE, self._device), READ_WRITE)
        undo: list[tuple[str, tuple[Any, ...]]] = [("cuMemRelease", (handle,))]
        try:
            self.call("cuMemAddressReserve", ctypes.byref(address), length, none, 0, 0)
            undo.append(("cuMemAddressFree", (address, length)))
            self.call("cuMemMap", address, length, none, handle, 0)
            undo.append(("cuMemUnmap", (address, length)))
            self.call("cuMemSetAccess", address, length, ctypes.byref(access), ctypes.c_size_t(1))
        except CudaError:
            for name, arguments in reversed(undo):
                self.call(name, *arguments)
            raise
        return DeviceBlock(self, handle, address.value, size)

    def _property(self) -> Any:
        flags = (ctypes.c_ubyte * 8)()
        place = _Location(ON_DEVICE, self._device)
        return ctypes.byref(_Property(PINNED, POSIX_DESCRIPTOR, place, None, flags))

    def _rounded(self, size: int) -> int:
        step = ctypes.c_size_t()
        self.call("cuMemGetAllocationGranularity", ctypes.byref(step), self._property(), 0)
        return -(-size // step.value) * step.value


class DeviceBlock:
    """One mapped piece of device memory: ``address`` and ``size`` in bytes."""

    def __init__(self, driver: Driver, handle: ctypes.c_uint64, address: int, size: int) -> None:
        self._driver, self._handle = driver, handle
        self.address, self.size = address, size

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """All bytes, for torch and others; see Numba's "CUDA Array Interface (Version 3)"."""
        data = (self.address, False)
        return {"shape": (self.size,), "typestr": "|u1", "data": data, "version": 3}

    def export(self) -> int:
        """A new descriptor of this memory."""
        fd = ctypes.c_int()
        self._driver.call(
            "cuMemExportToShareableHandle",
            ctypes.byref(fd),
            self._handle,
            POSIX_DESCRIPTOR,
            ctypes.c_uint64(0),
        )
        return fd.value

    def release(self) -> None:
        """Unmap, and free once nobody else has it mapped. Idempotent."""
        if self.address:
            address, length = ctypes.c_uint64(self.address), ctypes.c_size_t(self.size)
            self._driver.call("cuMemUnmap", address, length)
            self._driver.call("cuMemAddressFree", address, length)
            self._driver.call("cuMemRelease", self._handle)
            self.address = 0
