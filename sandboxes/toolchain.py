"""What a sandbox sees of the host: an interpreter, the system's tools, chosen packages, no more.

The mounts serve agents in bubblewrap and docker and the graders' worker alike. The list is closed:
the system's ``/usr``, the files that its programs need from ``/etc``, the standard library of the
running interpreter at its own path (shared libraries are found by absolute run paths), and the
allowed packages under ``SITE``. Every folder in which packages could be installed is covered by an
empty one, so that neither ours nor anybody else's are importable.
"""

import importlib.metadata
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandboxes.base import Mount
from sandboxes.errors import SandboxUnavailable

SITE = "/opt/site"
"""Where the allowed packages are, inside."""

BASE_ENV = {"HOME": "/tmp", "LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}  # noqa: S108
"""The environment of every command, before what the session adds; nothing of the host's."""

_HOST_FILES = Path(__file__).parent / "images" / "host"
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
_SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SYSTEM_FILES = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Toolchain:
    """Read-only mounts, in the order in which they are made (later ones cover earlier ones)."""

    mounts: tuple[Mount, ...]
    python: str  # the interpreter's path inside
    env: dict[str, str] = field(default_factory=dict)
    site: str = SITE  # the folder with the allowed packages, for `python -I -S`


def host_toolchain(packages: Sequence[str] = ("numpy",)) -> Toolchain:
    """The running interpreter with only these distributions, and what they require, importable.

    Raises SandboxUnavailable when a package is not installed.
    """
    python = interpreter()
    mounts = [*_system(), *_interpreter_mounts(python)]
    mounts += _masks(mounts)
    mounts += [Mount(path, f"{SITE}/{path.name}") for path in _package_paths(packages)]
    folders = dict.fromkeys((str(python.parent), "/usr/local/bin", "/usr/bin", "/bin"))
    env = {"PATH": ":".join(folders), "PYTHONPATH": SITE, "PYTHONDONTWRITEBYTECODE": "1"}
    return Toolchain(tuple(mounts), str(python), env)


def link_packages(mounts: Iterable[Mount], folder: Path) -> Path:
    """Fill a fresh ``folder`` with links to the allowed packages, for where nothing is mounted."""
    folder.mkdir()
    for mount in mounts:
        if Path(mount.target).parent == Path(SITE):
            (folder / Path(mount.target).name).symlink_to(mount.source)
    return folder


def interpreter() -> Path:
    """The real interpreter below a virtual environment, the same path inside and outside."""
    base = Path(sys.base_prefix) / "bin" / _VERSION
    return base if base.is_file() else Path(os.path.realpath(sys.executable))


def reachable_by_others(paths: Iterable[Path]) -> bool:
    """Whether a process of any other user could enter and read these paths."""
    return all(
        path.exists()
        and path.stat().st_mode & 0o004
        and all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)
        for path in paths
    )


def _system() -> Iterator[Mount]:
    yield Mount(Path("/usr"), "/usr")
    for name in (*_SYSTEM_FOLDERS, *_SYSTEM_FILES):
        if Path(name).exists():
            yield Mount(Path(name).resolve(), name)
    for name in ("passwd", "group", "hosts"):
        yield Mount(_HOST_FILES / name, f"/etc/{name}")


def _interpreter_mounts(python: Path) -> Iterator[Mount]:
    """The standard library, headers and program, where ``/usr`` does not hold them already."""
    prefix = Path(sys.base_prefix)
    if python.is_relative_to("/usr"):
        if python.name != _system_python():
            yield Mount(python, "/opt/bin/python3")
        return
    for folder in ("lib", "include"):
        if (prefix / folder).is_dir():
            yield Mount((prefix / folder).resolve(), str(prefix / folder))
    for name in dict.fromkeys((python.name, "python3", "python")):
        yield Mount(python.resolve(), str(python.parent / name))


def _system_python() -> str:
    """The name of the program that ``python3`` means on the system's own path."""
    for folder in ("/usr/local/bin", "/usr/bin"):
        if (Path(folder) / "python3").exists():
            return (Path(folder) / "python3").resolve().name
    return ""


def _masks(mounts: Iterable[Mount]) -> Iterator[Mount]:
    """Cover every package folder of every interpreter that the mounts reach, and ourselves."""
    empty = _HOST_FILES / "empty"
    own = Path(__file__).resolve().parents[1]
    for mount in list(mounts):
        # `/usr` holds Debian's `lib/python3`, a local prefix and versioned folders.
        for pattern in ("python3*/*", "lib/python3*/*", "local/lib/python3*/*"):
            for folder in sorted(mount.source.glob(pattern)):
                if folder.name in _PACKAGE_FOLDERS and not folder.is_symlink():
                    yield Mount(empty, str(Path(mount.target) / folder.relative_to(mount.source)))
        if own.is_relative_to(mount.source) and own.name not in _PACKAGE_FOLDERS:
            yield Mount(empty, str(Path(mount.target) / own.relative_to(mount.source)))


def _package_paths(packages: Sequence[str]) -> list[Path]:
    """Top-level folders and modules of the distributions and, in turn, of what they require."""
    found: dict[Path, None] = {}
    waiting, seen = list(packages), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in packages:
                message = f"{name} is not installed here; run `pip install {name}`"
                raise SandboxUnavailable(message) from None
            continue  # required on other platforms only
        found.update(dict.fromkeys(_top_levels(distribution)))
        waiting += _required(distribution)
    return sorted(found)


def _top_levels(distribution: importlib.metadata.Distribution) -> Iterator[Path]:
    root = Path(str(distribution.locate_file(""))).resolve()
    names = {file.parts[0] for file in distribution.files or ()} - {"..", "/", "__pycache__"}
    for name in names or {distribution.metadata["Name"]}:  # Debian's packages list no files
        if (root / name).exists():
            yield root / name


def _required(distribution: importlib.metadata.Distribution) -> list[str]:
    """Names of the requirements that no extra guards."""
    plain = (line for line in distribution.requires or () if "extra ==" not in line)
    return [match.group() for line in plain if (match := re.match(r"[A-Za-z0-9._-]+", line))]
