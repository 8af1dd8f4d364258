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

TOOLS = "/opt/tools"
"""Where programs are that come with allowed packages, inside; first on the path."""

CUDA = Path("/usr/local/cuda")
"""Where NVIDIA's installers and images have the CUDA toolkit, or a link to it."""

BASE_ENV = {"HOME": "/tmp", "LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}  # noqa: S108
"""The environment of every command, before what the session adds; nothing of the host's."""

_HOST_FILES = Path(__file__).parent / "images" / "host"
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
_SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SYSTEM_FILES = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Toolchain:
    """Read-only mounts, in the order in which they are made (later ones cover earlier ones)."""

    mounts: tuple[Mount, ...]
    python: str  # the interpreter's path inside
    env: dict[str, str] = field(default_factory=dict)
    site: str = SITE  # the folder with the allowed packages, for `python -I -S`


def host_toolchain(packages: Sequence[str] = ("numpy",), optional: Sequence[str] = ()) -> Toolchain:
    """The running interpreter with only these distributions, and what they require, importable.

    Raises SandboxUnavailable when a package is not installed; ``optional`` ones may be missing.
    """
    python = interpreter()
    mounts = [*_system(), *_interpreter_mounts(python)]
    mounts += _masks(mounts)
    found = _with_requirements(packages, optional)
    paths = sorted({path for distribution in found for path in _top_levels(distribution)})
    mounts += [Mount(path, f"{SITE}/{path.name}") for path in paths]
    tools = [Mount(path, f"{TOOLS}/{path.name}") for path in _programs(found)]
    mounts += tools
    folders = [TOOLS] if tools else []
    folders += [str(python.parent), "/usr/local/bin", "/usr/bin", "/bin"]
    env = {"PYTHONPATH": SITE, "PYTHONDONTWRITEBYTECODE": "1"}
    if (CUDA / "bin").is_dir():
        folders.append(str(CUDA / "bin"))
        env["CUDA_HOME"] = str(CUDA)
    env["PATH"] = ":".join(dict.fromkeys(folders))
    return Toolchain(tuple(mounts), str(python), env)


def link_packages(mounts: Iterable[Mount], folder: Path) -> Path:
    """Fill a fresh ``folder`` with links to the allowed packages, for where nothing is mounted."""
    return _link(mounts, SITE, folder)


def link_tools(mounts: Iterable[Mount], folder: Path) -> Path:
    """Fill a fresh ``folder`` with links to the programs of the allowed packages."""
    return _link(mounts, TOOLS, folder)


def _link(mounts: Iterable[Mount], inside: str, folder: Path) -> Path:
    folder.mkdir()
    for mount in mounts:
        if Path(mount.target).parent == Path(inside):
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


def _with_requirements(
    packages: Sequence[str], optional: Sequence[str]
) -> list[importlib.metadata.Distribution]:
    """The distributions and, in turn, what they require."""
    found: list[importlib.metadata.Distribution] = []
    waiting = [(name, frozenset[str]()) for name in (*packages, *optional)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in packages:
                message = f"{name} is not installed here; run `pip install {name}`"
                raise SandboxUnavailable(message) from None
            continue  # not needed, or required on other platforms only
        found.append(distribution)
        waiting += _required(distribution, extras)
    return found


def _top_levels(distribution: importlib.metadata.Distribution) -> Iterator[Path]:
    """Top-level folders and modules."""
    root = Path(str(distribution.locate_file(""))).resolve()
    names = {file.parts[0] for file in distribution.files or ()} - {"..", "/", "__pycache__"}
    if not names:  # Debian's packages list no files
        listed = (distribution.read_text("top_level.txt") or "").split()
        names = {distribution.metadata["Name"], *listed}
    for name in names:
        if (root / name).exists():
            yield root / name


def _programs(distributions: Iterable[importlib.metadata.Distribution]) -> Iterator[Path]:
    """Compiled programs that distributions put on the path, beside the interpreter's.

    Scripts are left out: their first line names an interpreter that is not there inside.
    """
    for distribution in distributions:
        for file in distribution.files or ():
            if file.parts[0] == ".." and file.parent.name == "bin":
                path = Path(str(distribution.locate_file(file))).resolve()
                if path.is_file() and _is_elf(path):
                    yield path


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _required(
    distribution: importlib.metadata.Distribution, extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    """Names and extras of the requirements that no extra guards, or one of these."""
    for line in distribution.requires or ():
        guard = _EXTRA.search(line)
        match = _REQUIREMENT.match(line)
        if match is not None and (guard is None or guard[1] in extras):
            wanted = (extra.strip() for extra in (match[2] or "").split(","))
            yield match[1], frozenset(extra for extra in wanted if extra)
