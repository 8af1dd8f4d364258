"""What compilers leave behind, packed by the worker that builds and unpacked by those after it.

A pack is 8 bytes with the big-endian offset of the index, the files' contents, and the index: JSON,
a list of ``[path, mode, mtime_ns, size]`` in the order of the contents. Modification times are kept
to the nanosecond, because ninja compares them with its log. Only regular files travel. The referee
moves packs between workers of one submission, and never looks into them.
"""

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from typing import Any

CHUNK = 1 << 20
HEAD_BYTES = 8

Frame = dict[str, Any]


class TooMuch(Exception):
    """More bytes or files than a pack may have."""


def pack(worker: Any, frame: Frame) -> Frame:
    """The step of that name: ``size`` is 0 when there is nothing, or more than ``room``."""
    try:
        size = pack_into(worker.fds[0], worker.caches, frame["room"], frame["files"])
    except TooMuch as error:
        print(f"caches are not kept: {error}", flush=True)
        size = 0
    return {"ok": "pack", "size": size}


def pack_into(target: int, folder: str, room: int, most: int) -> int:
    """Write a pack; its bytes, 0 when there is no file."""
    index: list[list[Any]] = []
    offset = HEAD_BYTES
    for path in _files(folder):
        size = _append(path, target, offset, room, index, folder)
        offset += size
        if len(index) > most:
            raise TooMuch(f"more than {most} files")
    body = json.dumps(index).encode()
    if offset + len(body) > room:
        raise TooMuch(f"more than {room} bytes")
    _write(target, body, offset)
    _write(target, offset.to_bytes(HEAD_BYTES, "big"), 0)
    return offset + len(body) if index else 0


def unpack(source: int, folder: str) -> None:
    """Write the files of a pack below ``folder``."""
    size = os.fstat(source).st_size
    end = int.from_bytes(os.pread(source, HEAD_BYTES, 0), "big")
    offset = HEAD_BYTES
    for path, mode, mtime_ns, length in json.loads(os.pread(source, size - end, end)):
        whole = os.path.normpath(os.path.join(folder, path))  # noqa: PTH118 - no pathlib in here
        if not whole.startswith(f"{folder}/"):
            raise ValueError(f"{path!r} lies outside the caches")
        os.makedirs(os.path.dirname(whole), exist_ok=True)  # noqa: PTH103, PTH120
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        target = os.open(whole, flags, stat.S_IMODE(mode) | stat.S_IWUSR)
        try:
            _copy(source, offset, target, length)
            os.utime(target, ns=(mtime_ns, mtime_ns))
        finally:
            os.close(target)
        offset += length


def _files(folder: str) -> Iterator[str]:
    for path, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            yield os.path.join(path, name)  # noqa: PTH118


def _append(
    path: str, target: int, offset: int, room: int, index: list[list[Any]], folder: str
) -> int:
    """Write one file at ``offset`` and its line to the index; its size. Links are left out."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return 0
        source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            info = os.fstat(source)
            if offset + info.st_size > room:
                raise TooMuch(f"more than {room} bytes")
            copied = _copy(source, 0, target, info.st_size, offset)
        finally:
            os.close(source)
        line = [os.path.relpath(path, folder), info.st_mode, info.st_mtime_ns, copied]
        index.append(line)
        return copied
    return 0


def _copy(source: int, begin: int, target: int, size: int, place: int = 0) -> int:
    """Copy ``size`` bytes, or as many as there are; how many."""
    done = 0
    while done < size:
        data = os.pread(source, min(CHUNK, size - done), begin + done)
        if not data:
            break
        _write(target, data, place + done)
        done += len(data)
    return done


def _write(target: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(target, view, offset)
        view, offset = view[written:], offset + written
