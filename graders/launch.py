"""Start a worker: a folder with what it may see, and a process in a jail around it."""

import itertools
import json
import os
import secrets
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from graders import surroundings
from graders.errors import GraderVoid
from graders.printed import last_words
from graders.running import Place, Running
from sandboxes.base import Limits, Mount
from sandboxes.cgroup import Cgroup
from sandboxes.devices import gpu_devices
from sandboxes.errors import SandboxError
from sandboxes.jail import Jail, spare_uid, unconfined
from sandboxes.scratch import Scratch
from sandboxes.toolchain import Toolchain, link_packages, link_tools, reachable_by_others

HERE = Path(__file__).parent
INSIDE = "/grading"
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
    with Scratch("grading") as scratch:
        root = scratch.path
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


@contextmanager
def changed_world(place: World, change: Callable[[Path], None]) -> Iterator[World]:
    """The same world with another mark, after ``change`` of its copy of the submission.

    Files are read-only until they are made writable.
    """
    with Scratch("grading") as scratch:
        root = scratch.path
        root.chmod(0o755)
        worker, submission = root / "worker", root / "submission"
        shutil.copytree(place.worker, worker)
        shutil.copytree(place.submission, submission)
        change(submission)
        yield replace(place, worker=worker, submission=submission, mark=secrets.token_hex(16))


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


def start(place: World, memory_bytes: int, device: str, questions: int, answers: int) -> Running:
    """Start a worker that reads one descriptor and answers on the other. Raises GraderVoid.

    What it prints is one pipe. ``device`` is "cpu", or the UUID of the one GPU that it may use.
    """

    def argv(inside: "_Inside") -> list[str]:
        options = {"questions": questions, "answers": answers, "site": [inside.site]}
        options["caches"] = surroundings.caches(inside.scratch)
        main = str(inside.root / "worker" / "main.py")
        return [inside.toolchain.python, "-I", "-S", "-u", main, json.dumps(options)]

    limits = surroundings.limits(memory_bytes, device)
    return _start(place, argv, limits, device, (questions, answers))


def run_file(
    place: World, file: str, arguments: list[str], s: float, memory_bytes: int
) -> tuple[int | None, str]:
    """Run one Python file of the submission; exit code (None: not in time) and its last words."""

    def argv(inside: "_Inside") -> list[str]:
        path = str(inside.root / "submission" / file)
        python = inside.toolchain.python
        return [python, "-I", "-S", "-c", _RUN_FILE, inside.site, path, *arguments]

    running = _start(place, argv, surroundings.limits(memory_bytes, "cpu"), "cpu", ())
    try:
        return last_words(running.popen, max(s, 0.1), TAIL_BYTES)
    finally:
        assert running.popen.stdout is not None
        running.popen.stdout.close()
        running.kill()


def shown(place: World) -> Path:
    """The submission's folder as the worker sees it."""
    return _root(place) / "submission"


@dataclass(frozen=True)
class _Inside:
    """What the command of a worker is made of: paths as they are for it."""

    toolchain: Toolchain
    root: Path
    site: str
    scratch: str


def _start(
    place: World,
    argv: Callable[[_Inside], list[str]],
    limits: Limits,
    device: str,
    fds: tuple[int, ...],
) -> Running:
    group = None
    try:
        toolchain = surroundings.toolchain_of(place.packages)
        group = surroundings.group(limits, device)
        launcher = _confined if place.is_confined else _unconfined
        return launcher(place, toolchain, argv, limits, device, fds, group)
    except (SandboxError, OSError) as error:
        if group is not None:
            group.remove()
        raise GraderVoid(
            f"no worker can be started: {error}; `orchestrator doctor` says what is missing, "
            "`--sandbox process` grades without isolation and marks it"
        ) from error


def _root(place: World) -> Path:
    return Path(INSIDE) if place.is_confined else place.worker.parent


def _confined(
    place: World,
    toolchain: Toolchain,
    argv: Callable[[_Inside], list[str]],
    limits: Limits,
    device: str,
    fds: tuple[int, ...],
    group: Cgroup | None,
) -> Running:
    inside = _Inside(toolchain, _root(place), toolchain.site, "/tmp")  # noqa: S108 - its own tmpfs
    jail = Jail(
        mounts=(
            *toolchain.mounts,
            Mount(place.worker, f"{INSIDE}/worker"),
            Mount(place.submission, f"{INSIDE}/submission"),
        ),
        env=surroundings.environment(toolchain, inside.site, place.mark, inside.scratch, device),
        cwd=f"{INSIDE}/submission",
        uid=spare_uid(place.mark),
        limits=limits,
        devices=gpu_devices((device,)) if device != "cpu" else (),
        cap_memory=device == "cpu",  # CUDA reserves address space that it never uses
        cgroup=None if group is None else group.procs,
    )
    popen = jail.popen(argv(inside), pass_fds=fds, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return _running(popen, place, device, group)


def _unconfined(
    place: World,
    toolchain: Toolchain,
    argv: Callable[[_Inside], list[str]],
    limits: Limits,
    device: str,
    fds: tuple[int, ...],
    group: Cgroup | None,
) -> Running:
    scratch = _scratch(place)
    site, tools = _linked(place, toolchain)
    inside = _Inside(toolchain, _root(place), str(site), str(scratch))
    env = surroundings.environment(toolchain, inside.site, place.mark, inside.scratch, device)
    uid: int | None = spare_uid(place.mark)
    if uid == os.getuid() or not reachable_by_others([Path(toolchain.python), *site.iterdir()]):
        uid = None
    else:
        os.chown(scratch, spare_uid(place.mark), -1)
    popen = unconfined(
        argv(inside),
        env=env | {"PATH": f"{tools}:{env['PATH']}"},
        cwd=place.submission,
        uid=uid,
        limits=limits,
        cap_memory=device == "cpu",
        pass_fds=fds,
        cgroup=None if group is None else group.procs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return _running(popen, place, device, group, scratch)


def _running(
    popen: subprocess.Popen[bytes],
    place: World,
    device: str,
    group: Cgroup | None,
    scratch: Path | None = None,
) -> Running:
    where = Place(str(shown(place)), place.packages, device)
    return Running(popen, place.mark, place.is_confined, where, group, scratch)


def _scratch(place: World) -> Path:
    """A fresh folder; where the last worker's is gone, in its place: caches name whole paths."""
    folders = (place.worker.parent / f"scratch-{n}" for n in itertools.count())
    free = next(folder for folder in folders if not folder.exists())
    free.mkdir(mode=0o700)
    return free


def _linked(place: World, toolchain: Toolchain) -> tuple[Path, Path]:
    """Folders with links to the allowed packages and their programs, and nothing else."""
    site, tools = place.worker.parent / "site", place.worker.parent / "tools"
    if not site.exists():
        link_packages(toolchain.mounts, site)
        link_tools(toolchain.mounts, tools)
    return site, tools
