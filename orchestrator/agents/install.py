"""Installed harnesses: pinned, into a cache folder, with a record of what was installed.

A folder a harness and version, mounted read-only into sandboxes. The record is written last, so
that a broken installation is none; its digest is over every file, so that a change is seen.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from orchestrator.agents.harnesses.base import Harness, Package
from orchestrator.errors import UserError

RECORD = "installed.json"
_TIMEOUT_S = 900


class NotInstalled(UserError):
    """The harness is not in the cache folder, or is not what was installed."""


class InstallFailed(UserError):
    """The registry's client failed."""


def cache_folder() -> Path:
    """``$KERNEL_ORCHESTRATOR_HARNESSES``, else below the user's cache folder."""
    chosen = os.environ.get("KERNEL_ORCHESTRATOR_HARNESSES")
    if chosen:
        return Path(chosen).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "kernel-orchestrator" / "harnesses"


def folder_of(harness: Harness) -> Path:
    """Where this version of the harness is installed, or would be."""
    return cache_folder() / f"{harness.name}-{harness.package.version}"


def is_installed(harness: Harness) -> bool:
    """Whether it was installed completely; `verified` also reads every file."""
    return (folder_of(harness) / RECORD).is_file()


def root_of(harness: Harness) -> Path:
    """Its folder. Raises NotInstalled."""
    if not is_installed(harness):
        raise NotInstalled(
            f"harness `{harness.name}` {harness.package.version} is not installed here; run "
            f"`orchestrator harness install {harness.name}`"
        )
    return folder_of(harness)


def verified(harness: Harness) -> Path:
    """Its folder, every file as it was installed. Raises NotInstalled."""
    root = root_of(harness)
    recorded = json.loads((root / RECORD).read_text("utf-8"))["tree_sha256"]
    if recorded != tree_digest(root):
        raise NotInstalled(
            f"{root} is not what was installed; run `orchestrator harness install {harness.name} "
            "--again`"
        )
    return root


def install(harness: Harness, *, again: bool = False) -> Path:
    """Install the pinned version where it is not yet. Raises InstallFailed."""
    target = folder_of(harness)
    if is_installed(harness) and not again:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _fetch(harness.package, fresh)
        fresh.chmod(0o755)
        record = {
            "name": harness.name,
            "registry": harness.package.registry,
            "package": harness.package.name,
            "version": harness.package.version,
            "tree_sha256": tree_digest(fresh),
        }
        (fresh / RECORD).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _fetch(package: Package, target: Path) -> None:
    if package.registry == "npm":
        argv = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(target)]
        argv.append(f"{package.name}@{package.version}")
    else:
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
        argv.append(f"{package.name}=={package.version}")
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise InstallFailed(
            f"`{argv[0]}` is not on the PATH; install Node.js 20 or newer with npm, then try again"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise InstallFailed(f"{' '.join(argv)}: not done after {_TIMEOUT_S} s") from error
    if done.returncode:
        raise InstallFailed(f"{' '.join(argv)} failed:\n{done.stderr[-2000:]}")


def tree_digest(root: Path) -> str:
    """SHA-256 over names, links and contents, but for the record and derived bytecode."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name == RECORD or "__pycache__" in path.parts:
            continue
        if path.is_symlink():
            digest.update(f"link {name} {path.readlink()}\n".encode())
        elif path.is_file():
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"file {name} {content}\n".encode())
    return digest.hexdigest()
