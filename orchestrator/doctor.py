"""What this machine can do, what is missing, and the command that fixes it."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.models.roster import load_roster
from sandboxes.registry import KINDS, provider
from tasks.deck import deck_names, deck_tasks, load_deck

_ENOUGH_DISK_BYTES = 5 << 30
"""An archive of a few hundred sessions, their workspaces and the engine's images."""


@dataclass(frozen=True)
class Finding:
    """One thing looked at. ``needed`` False: nice to have."""

    topic: str
    ok: bool
    detail: str
    fix: str = ""
    needed: bool = True


def examine(archive: Path) -> list[Finding]:
    """Look at everything; nothing is changed."""
    looks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _python,
        _sandboxes,
        _compiler,
        _gpu,
        _decks,
        _keys,
        lambda: _archive(archive),
    )
    return [finding for look in looks for finding in look()]


def _python() -> Iterator[Finding]:
    ok = sys.version_info >= (3, 11)
    detail = f"Python {platform.python_version()} at {sys.executable}"
    yield Finding("python", ok, detail, "" if ok else "install Python 3.11 or newer")


def _sandboxes() -> Iterator[Finding]:
    usable = False
    for kind in KINDS:
        reason = provider(kind).unavailable_reason()
        usable = usable or (reason is None and kind != "process")
        detail = "works" if reason is None else reason
        if kind == "process":
            detail = "works, and isolates nothing: cells are marked"
        yield Finding(f"sandbox {kind}", reason is None, detail, needed=False)
    fix = "" if usable else "apt-get install bubblewrap   (or start a Docker Engine)"
    yield Finding("isolation", usable, "available" if usable else "none on this machine", fix)


def _compiler() -> Iterator[Finding]:
    found = shutil.which("gcc") or shutil.which("cc")
    yield Finding(
        "C compiler",
        found is not None,
        found or "none: submissions that compile C fail, and their grades are void",
        "" if found else "apt-get install gcc libc6-dev",
        needed=False,
    )


def _gpu() -> Iterator[Finding]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        detail = "no NVIDIA driver: the CPU tasks run, GPU tasks do not"
        yield Finding("GPU", False, detail, needed=False)
        return
    query = [tool, "--query-gpu=name,uuid,driver_version", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    ok = listed.returncode == 0 and bool(listed.stdout.strip())
    yield Finding("GPU", ok, listed.stdout.strip() or listed.stderr.strip(), needed=False)


def _decks() -> Iterator[Finding]:
    for name in deck_names():
        tasks = ", ".join(task.name for task in deck_tasks(load_deck(name)))
        yield Finding(f"deck {name}", True, tasks)


def _keys() -> Iterator[Finding]:
    models: dict[str, list[str]] = {}
    for entry in load_roster():
        if entry.key:
            models.setdefault(entry.key, []).append(entry.name)
    for variable, names in models.items():
        ok = bool(os.environ.get(variable))
        fix = "" if ok else f"export {variable}=..."
        yield Finding(f"key {variable}", ok, f"for {', '.join(names)}", fix, needed=False)


def _archive(path: Path) -> Iterator[Finding]:
    place = path if path.exists() else path.absolute().parent
    writable = os.access(place, os.W_OK)
    free = shutil.disk_usage(place).free
    detail = f"{path}: {'writable' if writable else 'not writable'}, {free >> 30} GiB free"
    fix = "" if writable else "choose another folder with --archive"
    yield Finding("archive", writable, detail, fix)
    if free < _ENOUGH_DISK_BYTES:
        yield Finding("disk", False, f"{free >> 20} MiB free", "free some space", needed=False)
