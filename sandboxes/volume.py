"""Where a workspace lies: in a file system of limited size, or in a plain folder where none can be.

The limited one is an ext4 image, ``workspace.img`` in the session's folder, behind a loop device.
The kernel keeps the limit, whatever a command writes: blocks that sparse files do not use are not
counted, those of deleted files that are still open are, and there are only so many inodes. It is
mounted where only this process and the sandbox see it, so the mount goes with the last of them,
however they die, and the image keeps what was written.

The image is sparse, so the host's disk may be full before it is. What a command wrote is therefore
handed to the host's file system before the command counts as finished (`Volume.settle`); a write
that the host refuses then ends the sandbox, and the journal, whose blocks are set aside, is
replayed when there is space again.
"""

import contextlib
import functools
import os
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from sandboxes import loop, spawner
from sandboxes.errors import SandboxStartFailed

IMAGE, FOLDER = "workspace.img", "workspace"
MOUNT_OPTIONS = "noinit_itable,nobarrier"
"""No flush of the host's disk for each of an agent's; `_repair` looks after a lost machine."""

SMALLEST_BYTES = 16 << 20
_SHARE_OF_FREE = 0.9
_BLOCK, _BYTES_PER_INODE, _JOURNAL_MIB = 4096, 16384, 4
_INITIAL = "lazy_itable_init=1,lazy_journal_init=0,nodiscard"
_LEAVE_S = 10.0
"""How long the last sandbox on an image may take to be gone."""

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STATE_AT, _INCOMPAT_AT = 1024 + 0x3A, 1024 + 0x60  # of the superblock, ext4's disk layout
_CLEAN, _RECOVER = 1, 4


class Volume:
    """A plain folder: its size is not limited."""

    device = ""
    """The block device that holds it, while it is held; empty for a folder of the host's disk."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep it mounted; `root` holds it by itself."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    def hold(self) -> None:
        """Mount it unless it is. Each call wants a `release`."""

    def release(self) -> None:
        """Unmount it with the last one. Never raises."""

    def open_root(self) -> int:
        """A descriptor of the folder; only while it is held."""
        return os.open(self.folder, _OPEN)

    def settle(self) -> None:
        """See that what was written so far is in the host's hands. Raises OSError if it cannot."""

    def visible(self) -> AbstractContextManager[None]:
        """On the spawner's thread: what starts in the block sees it at `folder`."""
        return contextlib.nullcontext()


class ImageVolume(Volume):
    """A file system of its own, mounted as long as somebody holds it."""

    def __init__(self, folder: Path, image: Path) -> None:
        super().__init__(folder)
        self._image, self._lock, self._holders = image, threading.Lock(), 0
        self._root = self._mounts = -1  # the root and a mount namespace that shows it

    def hold(self) -> None:
        """Attach and mount. Raises SandboxStartFailed."""
        with self._lock:
            if self._holders == 0:
                try:
                    self._attach()
                except (OSError, subprocess.SubprocessError) as error:
                    raise SandboxStartFailed(f"the workspace cannot be mounted: {error}") from error
            self._holders += 1

    def release(self) -> None:
        """Let it go; the last one unmounts."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                os.close(self._root)
                os.close(self._mounts)
                self.device = ""

    def open_root(self) -> int:
        """A descriptor of the file system's root; only while it is held."""
        return os.open(".", _OPEN, dir_fd=self._root)

    def settle(self) -> None:
        """Write back; an error of any write since the last time is raised."""
        loop.sync_file_system(self._root)

    def visible(self) -> AbstractContextManager[None]:
        """The namespace in which it is mounted, for what starts in the block."""
        return loop.in_mounts(self._mounts)

    def _attach(self) -> None:
        device = loop.attach(self._image, _LEAVE_S)
        try:
            self.device = loop.device_path(device)
            _repair(self.device)
            spawner.call(self._mount)
        finally:
            os.close(device)

    def _mount(self) -> None:
        with loop.in_new_mounts() as mounts:
            try:
                loop.mount_ext4(self.device, self.folder, MOUNT_OPTIONS)
                self._root = os.open(self.folder, _OPEN)
            except OSError:
                os.close(mounts)
                raise
            self._mounts = mounts


def volume_in(state_dir: Path, size: int) -> Volume:
    """The volume of a session, made unless it is there.

    Raises SandboxStartFailed for an image that cannot be mounted here, and for one of no content.
    """
    folder, image = state_dir / FOLDER, state_dir / IMAGE
    if not image.exists():
        state_dir.mkdir(parents=True, exist_ok=True)
        begun = folder.is_dir() and any(folder.iterdir())  # where no image could be
        full = shutil.disk_usage(state_dir).free < SMALLEST_BYTES  # which is a limit too
        if begun or full or why_not_limited() is not None:
            return Volume(folder)
        make_image(image, size)
    elif (reason := why_not_limited()) is not None:
        raise SandboxStartFailed(f"this workspace is an image, and here {reason}")
    return ImageVolume(folder, image.resolve())


def make_image(image: Path, size: int) -> None:
    """Make an empty file system of ``size`` bytes, its own tables and journal included.

    It is never larger than most of what the disk has free, and at least `SMALLEST_BYTES`. It takes
    its journal and 0.2 MB at first and grows with what is written.
    """
    free = shutil.disk_usage(image.parent).free
    size = max(SMALLEST_BYTES, min(size, int(free * _SHARE_OF_FREE))) // _BLOCK * _BLOCK
    temporary = image.with_name(image.name + ".new")
    with temporary.open("wb") as file:
        file.truncate(size)
        for at, data in _template(size):
            if data.strip(b"\0"):
                os.pwrite(file.fileno(), data, at)
            else:
                os.posix_fallocate(file.fileno(), at, len(data))
    temporary.replace(image)


@functools.cache
def why_not_limited() -> str | None:
    """Why workspaces are plain folders here, found by mounting a small one; None when not."""
    if os.geteuid() != 0:
        return "only root can mount images, so that a workspace's size is not limited"
    if shutil.which("mkfs.ext4") is None:
        return "mkfs.ext4 is not installed (`apt-get install e2fsprogs`)"
    with tempfile.TemporaryDirectory() as place:
        image = Path(place) / IMAGE
        try:
            make_image(image, SMALLEST_BYTES)
            with ImageVolume(Path(place) / FOLDER, image).held():
                return None
        except (OSError, SandboxStartFailed, subprocess.SubprocessError) as error:
            return f"images cannot be mounted ({error})"


@functools.lru_cache(maxsize=8)
def _template(size: int) -> tuple[tuple[int, bytes], ...]:
    """The parts of a fresh file system that are written, its journal's zeros too, by offset."""
    fd = os.memfd_create("template", os.MFD_CLOEXEC)
    try:
        os.truncate(fd, size)
        layout = ["-b", str(_BLOCK), "-i", str(_BYTES_PER_INODE), "-J", f"size={_JOURNAL_MIB}"]
        tuned = ["-m", "0", "-O", "^resize_inode", "-E", _INITIAL]
        file = f"/proc/self/fd/{fd}"
        make = ["mkfs.ext4", "-q", "-F", *layout, *tuned, file]
        for command in make, ["debugfs", "-w", "-R", "rmdir lost+found", file]:
            subprocess.run(command, check=True, capture_output=True, pass_fds=[fd])
        return tuple(_extents(fd))
    finally:
        os.close(fd)


def _extents(fd: int) -> Iterator[tuple[int, bytes]]:
    end, at = os.fstat(fd).st_size, 0
    while at < end:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole follows
            return
        hole = os.lseek(fd, at, os.SEEK_HOLE)
        yield at, os.pread(fd, hole - at, at)
        at = hole


def _repair(device: str) -> None:
    """Check a file system that was not unmounted: the machine itself stopped. Raises OSError."""
    with Path(device).open("rb") as file:
        head = file.read(4096)
    (state,) = struct.unpack_from("<H", head, _STATE_AT)
    (features,) = struct.unpack_from("<I", head, _INCOMPAT_AT)
    if state == _CLEAN and not features & _RECOVER:
        return
    done = subprocess.run(["e2fsck", "-y", device], capture_output=True, check=False)
    if done.returncode >= 4:  # e2fsck(8): errors are left
        raise OSError(done.stdout.decode(errors="replace").strip()[-300:])
