"""Every kind of sandbox, started for real."""

import functools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxes.base import ExecResult, Limits, Sandbox, SandboxProvider, SandboxSpec
from sandboxes.registry import KINDS, provider
from sandboxes.toolchain import host_toolchain

Start = Callable[..., Sandbox]
Shell = Callable[..., ExecResult]

MARKED = [
    pytest.param(kind, marks=[pytest.mark.docker] if kind == "docker" else []) for kind in KINDS
]


@functools.cache
def why_not(kind: str) -> str | None:
    return provider(kind).unavailable_reason()


@pytest.fixture(params=MARKED)
def kind(request: pytest.FixtureRequest) -> str:
    if (reason := why_not(request.param)) is not None:
        pytest.skip(f"{request.param}: {reason}")
    return str(request.param)


@pytest.fixture
def maker(kind: str) -> SandboxProvider:
    return provider(kind)


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., SandboxSpec]:
    toolchain = host_toolchain()
    session = uuid.uuid4().hex

    def make(**options: Any) -> SandboxSpec:
        chosen: dict[str, Any] = {
            "session_id": session,
            "owner": "the-tests",
            "state_dir": tmp_path / "state",
            "mounts": toolchain.mounts,
            "env": toolchain.env,
        }
        limits = Limits(**options.pop("limits", {}))
        return SandboxSpec(**(chosen | options), limits=limits)

    return make


@pytest.fixture
def start(maker: SandboxProvider, spec: Callable[..., SandboxSpec]) -> Iterator[Start]:
    """Start a sandbox of this kind; all are closed in the end."""
    started: list[Sandbox] = []

    def begin(**options: Any) -> Sandbox:
        started.append(maker.start(spec(**options)))
        return started[-1]

    yield begin
    for sandbox in started:
        sandbox.close()


@pytest.fixture
def sandbox(start: Start) -> Sandbox:
    return start()


@pytest.fixture
def shell() -> Shell:
    """Run a script in a sandbox."""

    def run(sandbox: Sandbox, script: str, *, timeout_s: float = 60, **options: Any) -> ExecResult:
        return sandbox.exec(["bash", "-c", script], timeout_s=timeout_s, **options)

    return run


@pytest.fixture
def survivors(shell: Shell) -> Callable[[Sandbox, int], int]:
    """How many `sleep <seconds>` a sandbox sees, zombies not counted."""

    def count(sandbox: Sandbox, seconds: int) -> int:
        listing = 'for f in /proc/[0-9]*/cmdline; do tr "\\0" " " <$f; echo; done 2>/dev/null'
        found = shell(sandbox, f"{listing} | grep -c '^sleep {seconds} $'")
        return int(found.output)

    return count
