"""Whether a kind of sandbox keeps its promises here: one started for real, and looked at inside."""

import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandboxes.base import ExecResult, Limits, Sandbox, SandboxProvider, SandboxSpec
from sandboxes.errors import SandboxError
from sandboxes.syscalls import filter_program
from sandboxes.toolchain import host_toolchain
from sandboxes.volume import why_not_limited

_LIMITS = Limits(memory_bytes=1 << 30, disk_bytes=32 << 20)
_TIMEOUT_S = 60.0
_CONNECT = """
import errno, socket, sys
try:
    socket.create_connection(("192.0.2.1", 80), 2)
except OSError as error:
    sys.exit(error.errno != errno.ENETUNREACH)
sys.exit(2)
"""


@dataclass(frozen=True)
class Look:
    """One thing looked at."""

    topic: str
    ok: bool
    detail: str


def check(provider: SandboxProvider, image: str = "", gpus: tuple[str, ...] = ()) -> Sequence[Look]:
    """Start one and look; what it does not promise here is no failure. Raises SandboxUnavailable.

    A kind that does not isolate fails the looks at its isolation.
    """
    toolchain = host_toolchain()
    with tempfile.TemporaryDirectory() as folder:
        spec = SandboxSpec(
            session_id=uuid.uuid4().hex,
            owner="check",
            state_dir=Path(folder) / "state",
            mounts=toolchain.mounts,
            env=toolchain.env,
            limits=_LIMITS,
            gpus=gpus,
            image=image,
        )
        started = time.monotonic()
        sandbox = provider.start(spec)
        start_ms = (time.monotonic() - started) * 1e3
        try:
            found = [Look("start", True, f"{start_ms:.0f} ms"), *_looks(sandbox, bool(gpus))]
        finally:
            sandbox.close()
    return [*found, *(Look("not here", True, line) for line in provider.shortcomings())]


def _looks(sandbox: Sandbox, with_gpu: bool) -> Sequence[Look]:
    questions: list[tuple[str, str, Callable[[ExecResult], bool]]] = [
        ("command", "echo yes", lambda r: r.output == b"yes\n"),
        ("ordinary user", "id -u", lambda r: r.output.strip().isdigit() and int(r.output) != 0),
        ("no capabilities", "grep ^CapBnd: /proc/self/status", lambda r: _is_zero(r.output)),
        ("no network", f"python3 -c '{_CONNECT}' && echo unreachable", _succeeded),
        ("timeout", "(setsid sleep 600 &) ; sleep 600", lambda r: r.timed_out),
    ]
    if sandbox.kind != "process":  # which sees the host's first process
        questions.append(("supervisor", "kill -9 1; kill -0 1 && echo alive", _succeeded))
    if filter_program():
        filtered = "grep ^Seccomp: /proc/self/status"
        questions.append(("system calls", filtered, lambda r: r.output.endswith(b"2\n")))
    if why_not_limited() is None:
        fill = "head -c 64M /dev/zero > big; rm big"
        questions.append(("disk", fill, lambda r: b"No space left" in r.output))
    if with_gpu:
        questions.append(("GPU", "nvidia-smi -L || ls /dev/nvidia*", _succeeded))
    return [_look(sandbox, *question) for question in questions]


def _look(sandbox: Sandbox, topic: str, script: str, holds: Callable[[ExecResult], bool]) -> Look:
    timeout_s = 0.3 if topic == "timeout" else _TIMEOUT_S
    try:
        result = sandbox.exec(["bash", "-c", script], timeout_s=timeout_s)
    except SandboxError as error:
        return Look(topic, False, str(error))
    said = result.output.decode(errors="replace").strip().splitlines()
    return Look(topic, holds(result), said[0][:100] if said else f"exit code {result.exit_code}")


def _succeeded(result: ExecResult) -> bool:
    return result.exit_code == 0


def _is_zero(output: bytes) -> bool:
    return int(output.split()[-1], 16) == 0
