"""What this machine can do, what is missing, and the command that fixes it."""

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from graders import gpu_rules, gpu_state, machine
from orchestrator.agents.chosen import missing_program
from orchestrator.agents.install import is_installed, root_of
from orchestrator.agents.registry import HARNESSES, harness
from orchestrator.models.roster import load_roster
from sandboxes.registry import KINDS, provider
from tasks import hardware
from tasks.deck import deck_names, deck_tasks, load_deck

_CUDA = "/usr/local/cuda"  # where NVIDIA's packages and images have the toolkit
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
        _harnesses,
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
        detail = reason or "; ".join(["works", *provider(kind).shortcomings()])
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
    there = machine.gpus()
    if not there:
        detail = "the driver names none" if shutil.which("nvidia-smi") else "no NVIDIA driver"
        detail += ": the CPU tasks run, GPU tasks do not"
        yield Finding("GPU", False, detail, needed=False)
        return
    for gpu in there:
        now = gpu_state.reading(gpu.uuid)
        told = f"{gpu.name}, driver {gpu.driver}, {gpu_state.summary(now)}"
        row = hardware.match(gpu.name)
        peaks = f"peaks of {row}" if row else "no row of peaks: held against what it measures"
        why = gpu_rules.busy(now)
        yield Finding(f"GPU {gpu.uuid}", not why, f"{told}; {peaks}", why, needed=False)
    yield from _gpu_tools()


def _gpu_tools() -> Iterator[Finding]:
    """What a worker needs to build and run kernels, where a worker sees it."""
    for package in ("torch", "triton"):
        found = _version(package)
        fix = "" if found else f"pip install {package}, of a version that fits the driver"
        yield _tool(package, found, fix)
    yield _tool("nvcc", _program("nvcc"), f"install the CUDA toolkit below {_CUDA}")
    ninja = _program("ninja") or (_version("ninja") and "of the package ninja")
    yield _tool("ninja", ninja, "apt-get install ninja-build   (or pip install ninja)")
    yield _tool("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")
    detail = _program("ncu")
    yield Finding("GPU profiler ncu", detail is not None, detail or "not there", needed=False)


def _tool(name: str, found: str | None, fix: str) -> Finding:
    detail = found or "missing: GPU submissions that need it cannot be graded"
    return Finding(f"GPU grading: {name}", found is not None, detail, "" if found else fix, False)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _program(name: str) -> str | None:
    """Where a program of the system is, for workers: not what this shell's path may add."""
    return shutil.which(name, path=f"/usr/local/bin:/usr/bin:/bin:{_CUDA}/bin")


def _harnesses() -> Iterator[Finding]:
    """The agents of `sweep --agent`, beside our own loop."""
    for name in HARNESSES:
        known = harness(name)
        package = f"{known.package.name} {known.package.version}, speaks {known.dialect}"
        if not is_installed(known):
            fix = f"orchestrator harness install {name}"
            yield Finding(f"agent {name}", False, f"{package}: not installed", fix, needed=False)
            continue
        missing = missing_program(known, root_of(known))
        yield Finding(f"agent {name}", not missing, missing or package, needed=False)


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
