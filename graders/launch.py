"""Start a worker: a folder with what it may see, and a process in a jail around it."""

import json
import os
import secrets
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from graders import processes
from graders.errors import GraderVoid
from graders.printed import last_words
from sandboxes.base import Limits, Mount
from sandboxes.devices import gpu_devices
from sandboxes.errors import SandboxError
from sandboxes.jail import Jail, kill_tree, spare_uid, unconfined
from sandboxes.toolchain import (
    Toolchain,
    host_toolchain,
    link_packages,
    reachable_by_others,
)

HERE = Path(__file__).parent
INSIDE = "/grading"
MAX_PIDS = 64
TAIL_BYTES = 4 << 10
MAX_FILES = 2000
MAX_BYTES = 256 << 20
"""Bounds of a submission; the archive's own snapshot limits are lower."""

_RUN_FILE = (
    "import os, runpy, sys; site, sys.argv[:] = sys.argv[1], sys.argv[2:]; "
    "sys.path[:0] = [os.path.dirname(sys.argv[0]), os.getcwd(), site]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""`python file` with our choice of packages: the file's folder and the submission come first."""


@dataclass(frozen=True)
class World:
    """The two folders that a worker is shown, both read-only for it."""

    worker: Path  # the files of `graders/worker`, and the task's adapter.py
    submission: Path
    isolation: str  # "bubblewrap" or "process"
    packages: tuple[str, ...]  # importable beside the standard library
    mark: str  # in the environment of all its processes; names its uid

    @property
    def is_confined(self) -> bool:
        """True when a jail hides everything else and none of its processes can hide."""
        return self.isolation == "bubblewrap"


@contextmanager
def world(
    adapter: Path,
    submission: Path | None,
    isolation: str,
    packages: tuple[str, ...] = ("numpy",),
) -> Iterator[World]:
    """Copy what a worker may see into a folder of its own; removed at the end.

    ``auto`` is bubblewrap: less isolation is on request only.
    """
    confined = isolation in ("auto", "bubblewrap")
    root = Path(tempfile.mkdtemp(prefix="grading-"))
    try:
        root.chmod(0o755)  # another uid reads it
        worker, copied = root / "worker", root / "submission"
        worker.mkdir()
        copied.mkdir()
        for source in worker_files():
            shutil.copyfile(source, worker / source.name)
        shutil.copyfile(adapter, worker / "adapter.py")
        if submission is not None:
            for relative, source in submission_files(submission):
                target = copied / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        _open_to_readers(root)
        kind = "bubblewrap" if confined else isolation
        yield World(worker, copied, kind, packages, secrets.token_hex(16))
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def changed_world(place: World, file: str, appended: str) -> Iterator[World]:
    """The same world with text at the end of one file of the submission, and another mark."""
    root = Path(tempfile.mkdtemp(prefix="grading-"))
    try:
        root.chmod(0o755)
        shutil.copytree(place.worker, root / "worker")
        shutil.copytree(place.submission, root / "submission")
        target = root / "submission" / file
        target.chmod(0o644)
        with target.open("a") as text:
            text.write(appended)
        yield replace(
            place,
            worker=root / "worker",
            submission=root / "submission",
            mark=secrets.token_hex(16),
        )
    finally:
        shutil.rmtree(root, ignore_errors=True)


def worker_files() -> list[Path]:
    """Our own code that a worker runs, and may read."""
    return sorted(path for path in (HERE / "worker").iterdir() if path.suffix in (".py", ".cu"))


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
    place: World, memory_bytes: int, device: str, questions: int, answers: int
) -> subprocess.Popen[bytes]:
    """Start a worker that reads one descriptor and answers on the other. Raises GraderVoid.

    What it prints is one pipe. ``device`` is "cpu", or the UUID of the one GPU that it may use.
    """

    def argv(toolchain: Toolchain, site: str, root: Path) -> list[str]:
        options = json.dumps({"questions": questions, "answers": answers, "site": [site]})
        return [toolchain.python, "-I", "-S", "-u", str(root / "worker" / "main.py"), options]

    return _start(place, argv, _limits(memory_bytes), device, (questions, answers))


def run_file(
    place: World, file: str, arguments: list[str], s: float, memory_bytes: int
) -> tuple[int | None, str]:
    """Run one Python file of the submission; exit code (None: not in time) and its last words."""

    def argv(toolchain: Toolchain, site: str, root: Path) -> list[str]:
        path = str(root / "submission" / file)
        return [toolchain.python, "-I", "-S", "-c", _RUN_FILE, site, path, *arguments]

    popen = _start(place, argv, _limits(memory_bytes), "cpu", ())
    try:
        return last_words(popen, max(s, 0.1), TAIL_BYTES)
    finally:
        assert popen.stdout is not None
        popen.stdout.close()
        kill(popen, place)


def shown(place: World) -> Path:
    """The submission's folder as the worker sees it."""
    return _root(place) / "submission"


def kill(popen: subprocess.Popen[bytes], place: World) -> None:
    """Kill a worker and all that it started; what left the tree is known by its mark."""
    kill_tree(popen)
    if not place.is_confined:
        processes.kill(processes.marked(place.mark))


def _start(
    place: World,
    argv: Callable[[Toolchain, str, Path], list[str]],
    limits: Limits,
    device: str,
    fds: tuple[int, ...],
) -> subprocess.Popen[bytes]:
    try:
        toolchain = _toolchain(place.packages)
        launcher = _confined if place.is_confined else _unconfined
        site = toolchain.site if place.is_confined else _linked_site(place, toolchain)
        words = argv(toolchain, site, _root(place))
        return launcher(place, toolchain, site, words, limits, device, fds)
    except (SandboxError, OSError) as error:
        raise GraderVoid(
            f"no worker can be started: {error}; `orchestrator doctor` says what is missing, "
            "`--sandbox process` grades without isolation and marks it"
        ) from error


def _root(place: World) -> Path:
    return Path(INSIDE) if place.is_confined else place.worker.parent


def _confined(
    place: World,
    toolchain: Toolchain,
    site: str,
    argv: list[str],
    limits: Limits,
    device: str,
    fds: tuple[int, ...],
) -> subprocess.Popen[bytes]:
    jail = Jail(
        mounts=(
            *toolchain.mounts,
            Mount(place.worker, f"{INSIDE}/worker"),
            Mount(place.submission, f"{INSIDE}/submission"),
        ),
        env=_environment(toolchain, site, place, "/tmp", device),  # noqa: S108 - its own tmpfs
        cwd=f"{INSIDE}/submission",
        uid=spare_uid(place.mark),
        limits=limits,
        devices=gpu_devices((device,)) if device != "cpu" else (),
        cap_memory=device == "cpu",  # CUDA reserves address space that it never uses
    )
    return jail.popen(argv, pass_fds=fds, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _unconfined(
    place: World,
    toolchain: Toolchain,
    site: str,
    argv: list[str],
    limits: Limits,
    device: str,
    fds: tuple[int, ...],
) -> subprocess.Popen[bytes]:
    scratch = Path(tempfile.mkdtemp(dir=place.worker.parent, prefix="scratch-"))
    uid: int | None = spare_uid(place.mark)
    if uid == os.getuid() or not reachable_by_others([Path(argv[0]), *Path(site).iterdir()]):
        uid = None
    else:
        os.chown(scratch, spare_uid(place.mark), -1)
    return unconfined(
        argv,
        env=_environment(toolchain, site, place, str(scratch), device),
        cwd=place.submission,
        uid=uid,
        limits=limits,
        cap_memory=device == "cpu",
        pass_fds=fds,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def _linked_site(place: World, toolchain: Toolchain) -> str:
    """A folder with links to the allowed packages; nothing else that is installed is in it."""
    site = place.worker.parent / "site"
    if not site.exists():
        link_packages(toolchain.mounts, site)
    return str(site)


def _limits(memory_bytes: int) -> Limits:
    return Limits(memory_bytes=memory_bytes, pids=MAX_PIDS)


def _environment(
    toolchain: Toolchain, site: str, place: World, scratch: str, device: str
) -> dict[str, str]:
    """One BLAS thread: the worker has one core. Caches of compilers start empty."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    folders = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR"), scratch)
    fixed = {"PATH": toolchain.env["PATH"], "PYTHONPATH": site, "GRADING_MARK": place.mark}
    gpu = {} if device == "cpu" else {"CUDA_VISIBLE_DEVICES": device}
    return fixed | threads | folders | gpu


@lru_cache
def _toolchain(packages: tuple[str, ...]) -> Toolchain:
    return host_toolchain(packages)
