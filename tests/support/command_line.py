"""The command line as a user runs it, in a process of its own."""

import json
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


def sweep_until_measured(folder: Path, *sweep: str) -> Finished:
    """Run a sweep, and again while a grade is void: the machine was not its own at that time."""
    for _ in range(4):
        done = run_in(folder, *sweep, timeout_s=290)
        status = run_in(folder, "--json", "status")
        if done.code != 0 or not any(row["grade"] == "void" for row in json.loads(status.out)):
            break
    return done


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
