"""Read the Python of a submission in the referee: into syntax trees, within bounds.

A tree takes up to 900 bytes a byte of source, and what looks harmless can cost minutes: with Python
3.11 an f-string of 1 MB, or a few hundred kilobytes under the ``punycode`` coding, whose decoder is
quadratic. So encodings are a closed list, and a file above ``SAFE_BYTES`` is parsed by a process
with limits before it is parsed here.
"""

import ast
import hashlib
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

MAX_SOURCE_BYTES = 1 << 20
"""Of one file, and of all files of a submission that are read together."""
SAFE_BYTES = 64 << 10
"""Up to here no source is known that costs more than 1 s and 60 MB."""
_CPU_S, _MEMORY, _PATIENCE_S = 5, 2 << 30, 60

_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # PEP 263
_CODINGS = frozenset({"utf-8", "utf-8-sig", "utf8", "ascii", "us-ascii", "latin-1", "iso-8859-1"})
_tried: dict[bytes, bool] = {}
_TRIAL = (
    "import ast, resource, sys; "
    f"resource.setrlimit(resource.RLIMIT_CPU, ({_CPU_S}, {_CPU_S})); "
    f"resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY}, {_MEMORY})); "
    "ast.parse(sys.stdin.buffer.read().decode())"
)


def parse(path: Path) -> ast.Module | None:
    """The syntax tree of a file; None when it is too large, no Python, or too costly to parse."""
    try:
        text = _text(_bytes(path))
        return ast.parse(text, str(path)) if _is_bearable(text) else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def size_of(path: Path) -> int:
    """Bytes of a file; 0 when it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def sibling_files(folder: Path, module: str) -> list[Path]:
    """Files of a submission that ``import module`` would load, seen from ``folder``."""
    try:
        base = folder.joinpath(*module.split("."))
        options = (base.with_suffix(".py"), base / "__init__.py")
        return [path for path in options if path.is_file() and not path.is_symlink()]
    except (OSError, ValueError):  # a name longer than a path can be, or with a null in it
        return []


def _bytes(path: Path) -> bytes:
    """A regular file of a bearable size; opening a FIFO does not wait for its writer."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("no regular file")
        data = file.read(MAX_SOURCE_BYTES + 1)
    if len(data) > MAX_SOURCE_BYTES:
        raise ValueError("too large")
    return data


def _text(data: bytes) -> str:
    """Source as the interpreter reads it. Raises ValueError for a coding that is not listed."""
    coding = "utf-8"
    for line in re.split(rb"\r\n?|\n", data, maxsplit=2)[:2]:
        if found := _CODING.match(line):
            coding = found[1].decode().lower().replace("_", "-")
    if coding not in _CODINGS:
        raise ValueError(f"source in {coding}")
    return data.decode("utf-8-sig" if coding.startswith("utf") else coding)


def _is_bearable(text: str) -> bool:
    """A verdict is remembered: a file is read several times in a grade."""
    if len(text) <= SAFE_BYTES:
        return True
    data = text.encode()
    digest = hashlib.sha256(data).digest()
    if digest not in _tried:
        _tried[digest] = _is_parsed(data)
    return _tried[digest]


def _is_parsed(data: bytes) -> bool:
    trial = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _TRIAL],
        input=data,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_PATIENCE_S,
        check=False,
    )
    return trial.returncode == 0
