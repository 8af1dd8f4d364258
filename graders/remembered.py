"""What this machine remembers between runs: small JSON files in the user's cache folder.

The folder is ``$XDG_CACHE_HOME/kernel-orchestrator``, by default below ``~/.cache`` (XDG Base
Directory Specification: a relative value is ignored). All of it can be deleted at any time. A file
that cannot be read or is no JSON object counts as empty; one that cannot be written is given up.
Files are replaced whole, so a reader never sees half of one; of two processes that write at the
same time one is forgotten, and what it knew is measured again.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "kernel-orchestrator"
MOST_BYTES = 4 << 20  # beyond, it is no file of ours


def path_of(name: str) -> Path:
    """Where ``name`` is kept."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    root = given if given.is_absolute() else Path(os.path.expanduser("~")) / ".cache"  # noqa: PTH111 - no error without a home
    return root / FOLDER / name


def load(name: str) -> dict[str, Any]:
    """The object in the file; empty when there is none, or none that can be read."""
    path = path_of(name)
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if path.stat().st_size <= MOST_BYTES:
            found = json.loads(path.read_text("utf-8"))
            return found if isinstance(found, dict) else {}
    return {}


def store(name: str, changed: Mapping[str, Any]) -> None:
    """Put these entries beside what is there."""
    path = path_of(name)
    text = json.dumps({**load(name), **changed}, indent=1, sort_keys=True, allow_nan=False)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text)


def _replace(path: Path, text: str) -> None:
    fd, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        Path(scratch).replace(path)
    except OSError:
        Path(scratch).unlink(missing_ok=True)
        raise
