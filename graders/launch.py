"""Start a worker: a folder with what it may see, and a process in a jail around it."""

import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from graders import processes
from graders.errors import GraderVoid
from sandboxes.base import Limits, Mount
from sandboxes.errors import SandboxError
from sandboxes.jail import Jail, kill_tree, spare_uid, unconfined
from sandboxes.toolchain import Toolchain, host_toolchain, reachable_by_others

HERE = Path(__file__).parent
INSIDE = "/grading"
MAX_PIDS = 64
MAX_FILES = 2000
MAX_BYTES = 256 << 20
"""Bounds of a submission; the archive's own snapshot limits are lower."""


@dataclass(frozen=True)
class World:
    """The two folders that a worker is shown, both read-only for it."""

    worker: Path  # worker.py, wire.py, adapter.py
    submission: Path
    isolation: str  # "bubblewrap" or "process"
    packages: tuple[str, ...]  # importable beside the standard library
    mark: str  # in the environment of all its processes; names its uid


@contextmanager
def world(
    adapter: Path,
    submission: Path | None,
    isolation: str,
    packages: tuple[str, ...] = ("numpy",),
) -> Iterator[World]:
    """Copy what a worker may see into a folder of its own; removed at the end."""
    root = Path(tempfile.mkdtemp(prefix="grading-"))
    try:
        root.chmod(0o755)  # another uid reads it
        worker, copied = root / "worker", root / "submission"
        worker.mkdir()
        copied.mkdir()
        for source in (HERE / "worker.py", HERE / "wire.py"):
            shutil.copyfile(source, worker / source.name)
        shutil.copyfile(adapter, worker / "adapter.py")
        if submission is not None:
            for relative, source in submission_files(submission):
                target = copied / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        _open_to_readers(root)
        yield World(worker, copied, isolation, packages, secrets.token_hex(16))
    finally:
        shutil.rmtree(root, ignore_errors=True)


def submission_files(folder: Path) -> list[tuple[str, Path]]:
    """Regular files of a submission, sorted; links, devices and sockets are never followed."""
    found: list[tuple[str, Path]] = []
    total = 0
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        inside = not any(parent.is_symlink() for parent in path.relative_to(folder).parents)
        if not stat.S_ISREG(info.st_mode) or not inside or "__pycache__" in path.parts:
            continue
        total += info.st_size
        if total > MAX_BYTES or len(found) >= MAX_FILES:
            break
        found.append((path.relative_to(folder).as_posix(), path))
    return found


def _open_to_readers(root: Path) -> None:
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o444)


def start(
    place: World, memory_bytes: int, device: str, channel: socket.socket
) -> subprocess.Popen[bytes]:
    """Start a worker on ``channel``; its output is one pipe. Raises GraderVoid."""
    try:
        toolchain = _toolchain(place.packages)
        confined = place.isolation == "bubblewrap"
        launcher = _confined if confined else _unconfined
        limits = Limits(memory_bytes=memory_bytes, pids=MAX_PIDS)
        return launcher(place, toolchain, limits, device, channel)
    except (SandboxError, OSError) as error:
        raise GraderVoid(
            f"no worker can be started: {error}; `orchestrator doctor` says what is missing, "
            "`--isolation process` grades without isolation and marks it"
        ) from error


def shown(place: World) -> Path:
    """The submission's folder as the worker sees it."""
    return Path(INSIDE, "submission") if place.isolation == "bubblewrap" else place.submission


def kill(popen: subprocess.Popen[bytes], place: World) -> None:
    """Kill a worker and all that it started; what left the tree is known by its mark."""
    kill_tree(popen)
    if place.isolation != "bubblewrap":
        processes.kill(processes.marked(place.mark))


def _confined(
    place: World, toolchain: Toolchain, limits: Limits, device: str, channel: socket.socket
) -> subprocess.Popen[bytes]:
    mounts = (
        Mount(place.worker, f"{INSIDE}/worker"),
        Mount(place.submission, f"{INSIDE}/submission"),
    )
    jail = Jail(
        mounts=(*toolchain.mounts, *mounts),
        env=_environment(toolchain, place, "/tmp"),  # noqa: S108 - a tmpfs of this worker alone
        cwd="/tmp",  # noqa: S108
        uid=spare_uid(place.mark),
        limits=limits,
        devices=gpu_devices() if device != "cpu" else (),
        cap_memory=device == "cpu",  # CUDA reserves address space that it never uses
    )
    argv = _argv(toolchain.python, f"{INSIDE}/worker/worker.py", toolchain.site, channel)
    return jail.popen(
        argv, pass_fds=(channel.fileno(),), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def _unconfined(
    place: World, toolchain: Toolchain, limits: Limits, device: str, channel: socket.socket
) -> subprocess.Popen[bytes]:
    root = place.worker.parent
    site, scratch = root / "site", Path(tempfile.mkdtemp(dir=root, prefix="scratch-"))
    if not site.exists():
        site.mkdir()
        for mount in toolchain.mounts:
            if mount.target.startswith(toolchain.site):
                (site / Path(mount.target).name).symlink_to(mount.source)
    uid = spare_uid(place.mark)
    others = reachable_by_others([Path(toolchain.python), *site.iterdir()])
    if others and uid != os.getuid():
        os.chown(scratch, uid, uid)
    return unconfined(
        _argv(toolchain.python, str(place.worker / "worker.py"), str(site), channel),
        env=_environment(toolchain, place, str(scratch)),
        cwd=scratch,
        uid=uid if others and uid != os.getuid() else None,
        limits=limits,
        cap_memory=device == "cpu",
        pass_fds=(channel.fileno(),),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def gpu_devices() -> tuple[str, ...]:
    """The device files of the NVIDIA driver."""
    return tuple(sorted(str(path) for path in Path("/dev").glob("nvidia*") if not path.is_dir()))


def _argv(python: str, worker: str, site: str, channel: socket.socket) -> list[str]:
    options = {"fd": channel.fileno(), "site": [site]}
    return [python, "-I", "-S", worker, json.dumps(options)]


def _environment(toolchain: Toolchain, place: World, scratch: str) -> dict[str, str]:
    """One BLAS thread: the worker has one core. Caches of compilers start empty."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    folders = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR"), scratch)
    return {"PATH": toolchain.env["PATH"], "GRADING_MARK": place.mark} | threads | folders


@lru_cache
def _toolchain(packages: tuple[str, ...]) -> Toolchain:
    return host_toolchain(packages)
