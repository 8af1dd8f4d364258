"""The host's side of a workspace: files in and out, past whatever an agent has planted there.

An agent may replace any folder by a link, and any file by a FIFO, a device, a link or a sparse
giant, at any moment. So every path is walked one component at a time by descriptor, links are never
followed, and what was opened is what is checked.
"""

import contextlib
import errno
import itertools
import os
import secrets
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import PurePosixPath

from sandboxes.base import Limits, Snapshot, SnapshotFile
from sandboxes.errors import FileTooLarge, OutsideWorkspace
from sandboxes.names import DERIVED, UNREADABLE, LeftOut, is_derived, printable, why_not_kept
from sandboxes.volume import Volume

MAX_DEPTH, MAX_ENTRIES = 32, 100_000
"""Of a snapshot's walk: folders can be nested and filled faster than they can be listed."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_Parts = tuple[str, ...]


class Workspace:
    """A session's workspace in a volume, known to commands as ``home``."""

    def __init__(self, volume: Volume, home: str, uid: int, limits: Limits) -> None:
        """Give the volume to ``uid``, whose processes work in it."""
        self._volume, self.home, self._uid, self._limits = volume, home, uid, limits
        with self._volume.held(), self._folder(()) as root:
            if os.fstat(root).st_uid != uid:
                self._give_away(root)

    def hold(self) -> None:
        """Keep its volume mounted, for those who run in it; each call wants a `release`."""
        self._volume.hold()

    def release(self) -> None:
        """Let the volume go; files can be read all the same."""
        self._volume.release()

    def settle(self) -> None:
        """See `Volume.settle`; only while it is held."""
        self._volume.settle()

    def put(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file, replacing what has its name; parents are made."""
        *parents, name = self._parts(path)
        with self._volume.held(), self._folder(tuple(parents), make=True) as folder:
            temporary = f".put-{secrets.token_hex(8)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
                    file.write(data)
                    os.fchmod(file.fileno(), 0o755 if executable else 0o644)
                    self._own(file.fileno())
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                self._volume.settle()
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    def get(self, path: str) -> bytes:
        """Read a regular file."""
        *parents, name = self._parts(path)
        with self._volume.held(), self._folder(tuple(parents)) as folder:
            data, _ = _read(folder, name, path, self._limits.get_bytes)
            return data

    def snapshot(self) -> Snapshot:
        """The regular files as far as the limits reach, small ones first; see `Sandbox`."""
        with self._volume.held():
            return self._snapshot()

    def _snapshot(self) -> Snapshot:
        out = LeftOut()
        left = self._limits.snapshot_bytes
        files: list[SnapshotFile] = []
        for size, parts in sorted(self._candidates(out)):
            path = "/".join(parts)
            try:
                with self._folder(parts[:-1]) as folder:
                    limit = min(left, self._limits.get_bytes)
                    data, executable = _read(folder, parts[-1], path, limit)
            except FileTooLarge:
                out.add(parts, self._too_large(size))
            except (OSError, OutsideWorkspace):
                out.add(parts, UNREADABLE)  # changed under us, or closed to us
            else:
                left -= len(data)
                files.append(SnapshotFile(path, data, executable))
        return Snapshot(tuple(sorted(files, key=lambda file: file.path.split("/"))), out.lines())

    def _candidates(self, out: LeftOut) -> list[tuple[int, _Parts]]:
        """Size and path of the files to read; a flood of files in folders hides none above it."""
        found: list[tuple[int, int, _Parts]] = []
        for parts, entries in self._walk(out):
            for entry in entries:
                path = (*parts, entry.name)
                if is_derived(entry.name):
                    out.add(path, DERIVED)
                elif entry.is_file(follow_symlinks=False):
                    if (reason := why_not_kept(path)) is not None:
                        out.add(path, reason)
                    else:
                        found.append((len(path), _size(entry), path))
                elif not entry.is_dir(follow_symlinks=False):
                    out.add(path, "a link or special file")
        most = self._limits.snapshot_files
        found.sort()
        for _, _, path in found[most:]:
            out.add(path, f"there are more than {most} files")
        return [(size, path) for _, size, path in found[:most]]

    def _too_large(self, size: int) -> str:
        if size > self._limits.get_bytes:
            return f"{size} bytes, more than the {self._limits.get_bytes} of one file"
        most = self._limits.snapshot_bytes
        return f"{size} bytes, and smaller files have most of the {most} of all"

    def _parts(self, path: str) -> _Parts:
        """The components of ``path`` below the workspace; never empty."""
        if "\0" in path or not _is_text(path):
            raise OutsideWorkspace(f"{path!r} is no path")
        pure = PurePosixPath(path)
        if pure.is_absolute() and pure.is_relative_to(self.home):
            pure = pure.relative_to(self.home)
        parts: list[str] = []
        for part in pure.parts:
            if part != "..":
                parts.append(part)
            elif not parts:
                raise OutsideWorkspace(f"{printable(path)} lies outside the workspace, {self.home}")
            else:
                parts.pop()
        if pure.is_absolute():
            raise OutsideWorkspace(f"{printable(path)} lies outside the workspace, {self.home}")
        if not parts:
            raise IsADirectoryError(errno.EISDIR, "this is the workspace itself, name a file", path)
        return tuple(parts)

    @contextlib.contextmanager
    def _folder(self, parts: _Parts, *, make: bool = False) -> Iterator[int]:
        """A descriptor of a folder, reached without following a link."""
        fd = self._volume.open_root()
        try:
            for n, part in enumerate(parts, 1):
                if make:
                    self._make(fd, part)
                below = _open(part, _FOLDER, fd, "/".join(parts[:n]))
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    def _make(self, folder: int, name: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=folder)
            made = _open(name, _FOLDER, folder, name)
            try:
                self._own(made)
            finally:
                os.close(made)

    def _own(self, fd: int) -> None:
        if self._uid != os.geteuid():
            os.fchown(fd, self._uid, self._uid)

    def _give_away(self, root: int) -> None:
        """Hand everything to the uid, links themselves and not what they point to."""
        for parts, entries in self._walk(LeftOut(), into_derived=True):
            with self._folder(parts) as folder:
                for entry in entries:
                    os.chown(entry.name, self._uid, self._uid, dir_fd=folder, follow_symlinks=False)
        os.fchown(root, self._uid, self._uid)

    def _walk(
        self, out: LeftOut, *, into_derived: bool = False
    ) -> Iterator[tuple[_Parts, list[os.DirEntry[str]]]]:
        """Folders with what is in them, shallow ones first, links not followed.

        What it does not reach, for its bounds or because it cannot be read, goes to ``out``.
        """
        waiting: deque[_Parts] = deque([()])
        left = MAX_ENTRIES
        while waiting:
            parts = waiting.popleft()
            if len(parts) > MAX_DEPTH or left == 0:
                out.add(parts, f"beyond {MAX_DEPTH} nested folders or {MAX_ENTRIES} entries")
                continue
            try:
                with self._folder(parts) as folder, os.scandir(folder) as scan:
                    entries = list(itertools.islice(scan, left))
                    left -= len(entries)
                    if next(scan, None) is not None:
                        out.add(parts, f"only its first {len(entries)} entries were looked at")
                    below = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
                    yield parts, entries
            except (OSError, OutsideWorkspace):
                out.add(parts, UNREADABLE)
                continue
            waiting += [(*parts, n) for n in below if into_derived or not is_derived(n)]


def _open(name: str, flags: int, folder: int, path: str) -> int:
    """Open below ``folder``; links, sockets and absent devices raise OutsideWorkspace."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(name, folder):
            raise OutsideWorkspace(
                f"{printable(path)} is a symbolic link; links are not followed"
            ) from error
        if error.errno in (errno.ENXIO, errno.ENODEV):
            raise OutsideWorkspace(f"{printable(path)} is no regular file") from error
        known = FileNotFoundError if isinstance(error, NotADirectoryError) else type(error)
        raise known(error.errno, error.strerror, path) from error


def _size(entry: os.DirEntry[str]) -> int:
    """Bytes; zero for what is gone, which reading will find."""
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def _is_text(path: str) -> bool:
    """False for half of a surrogate pair, which no file name can hold."""
    return path == path.encode(errors="replace").decode()


def _is_link(name: str, folder: int) -> bool:
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    return stat.S_ISLNK(mode)


def _read(folder: int, name: str, path: str, limit: int) -> tuple[bytes, bool]:
    """The content of a regular file of at most ``limit`` bytes, and whether it is executable."""
    with os.fdopen(_open(name, _FILE, folder, path), "rb", buffering=0, closefd=True) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OutsideWorkspace(f"{printable(path)} is no regular file")
        data = bytearray()
        while status.st_size <= limit and len(data) <= limit:
            chunk = file.read(min(1 << 20, limit + 1 - len(data)))
            if not chunk:
                return bytes(data), bool(status.st_mode & stat.S_IXUSR)
            data += chunk
    size = max(status.st_size, len(data))
    raise FileTooLarge(f"{printable(path)} has {size} bytes; the limit is {limit}")
