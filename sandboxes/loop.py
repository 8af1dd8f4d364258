"""Linux calls behind an image of a file system: loop devices, mounts that only we see, locks.

No tool is run for them: `losetup` and `mount` would cost more than a sandbox's start. Sources:
loop(4), mount(2), mount_namespaces(7).
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

_GET_FREE, _CONFIGURE = 0x4C82, 0x4C0A  # linux/loop.h
_AUTOCLEAR = 4
_CONFIG = struct.Struct("=II52xI176x64x")  # descriptor, block size, lo_flags within loop_info64
_NEWNS = 0x20000
_NOSUID, _NODEV, _RECURSIVE, _SLAVE = 2, 4, 1 << 14, 1 << 19
_MOUNTS = "/proc/thread-self/ns/mnt"
_MOST_TRIES = 16
_LOOK_S = 0.01

_libc = ctypes.CDLL(None, use_errno=True)


def attach(image: Path, timeout_s: float) -> int:
    """A descriptor of a loop device for ``image``; it is freed with its last mount or descriptor.

    The device holds a lock on the image as long as it lives, in every process and across machines
    that share the file: two devices for one image would destroy it. Raises TimeoutError where the
    lock stays taken, OSError where there are no loop devices.
    """
    fd = os.open(image, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _lock(fd, image, timeout_s)
        return _attach(fd)
    finally:
        os.close(fd)


def device_path(device: int) -> str:
    """The path of an open loop device."""
    return f"/dev/loop{os.minor(os.fstat(device).st_rdev)}"


@contextlib.contextmanager
def in_new_mounts() -> Iterator[int]:
    """A new mount namespace for this thread in the block; yields a descriptor that keeps it.

    The thread shares its working folder with no other thread afterwards. Needs CAP_SYS_ADMIN.
    """
    with _going_back():
        _check(_libc.unshare(_NEWNS), "unshare")
        _check(_libc.mount(None, b"/", None, _RECURSIVE | _SLAVE, None), "mount")
        yield os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def in_mounts(namespace: int) -> Iterator[None]:
    """That namespace for this thread in the block; what is started there stays in it."""
    with _going_back():
        _check(_libc.setns(namespace, _NEWNS), "setns")
        yield


@contextlib.contextmanager
def _going_back() -> Iterator[None]:
    before = os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        try:
            _check(_libc.setns(before, _NEWNS), "setns")
        finally:
            os.close(before)


def mount_ext4(device: str, folder: Path, options: str) -> None:
    """Mount without set-uid programs and devices."""
    words = (device.encode(), os.fsencode(folder), b"ext4", _NOSUID | _NODEV, options.encode())
    _check(_libc.mount(*words), f"mount {device}")


def sync_file_system(fd: int) -> None:
    """syncfs(2): write back what is dirty; raises OSError once for each write that failed since."""
    if _libc.syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _lock(fd: int, image: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{image} is mounted elsewhere: by what still runs of its last session, or "
                    "by a Docker Engine that died, which lets it go when it is started again"
                ) from None
            time.sleep(_LOOK_S)
        else:
            return


def _attach(image: int) -> int:
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_MOST_TRIES):
            number = fcntl.ioctl(control, _GET_FREE)
            device = os.open(f"/dev/loop{number}", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _CONFIGURE, _CONFIG.pack(image, 0, _AUTOCLEAR))
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # somebody else was quicker
                    raise
            else:
                return device
    finally:
        os.close(control)
    raise OSError(errno.EBUSY, "no loop device is free")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
