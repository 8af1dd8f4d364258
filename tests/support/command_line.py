"""The command line as a user runs it, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Finished:
    """What a command left."""

    code: int
    out: str
    err: str


Run = Callable[..., Finished]


def environment(home: Path, **extra: str) -> dict[str, str]:
    """This environment without anybody's keys and configuration."""
    clean = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**clean, "XDG_CONFIG_HOME": str(home / "no-config"), **extra}


def run_in(folder: Path, *arguments: str, timeout_s: float = 240.0, **extra: str) -> Finished:
    """Run `python -m orchestrator ...` in ``folder``."""
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        cwd=folder,
        env=environment(folder, **extra),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)
