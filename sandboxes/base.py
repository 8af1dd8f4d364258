"""The contract of a sandbox, the same for every kind; `tests/contracts` holds its suite.

A sandbox belongs to one session. Its workspace persists across a crash of the orchestrator; its
processes and /tmp do not. Nothing here assumes that caller and sandbox share a filesystem: files
travel by ``put``, ``get`` and ``snapshot``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, overload

WORKSPACE = "/workspace"
"""The workspace's path inside an isolated sandbox; `process` differs, so ask `Sandbox.home`."""


@dataclass(frozen=True)
class Mount:
    """A read-only folder or file of the host that is visible inside."""

    source: Path
    target: str


@dataclass(frozen=True)
class Limits:
    """Caps of one sandbox. Bytes and seconds."""

    memory_bytes: int = 8 << 30
    cpus: float = 2.0
    pids: int = 512
    file_bytes: int = 4 << 30  # largest single file (RLIMIT_FSIZE)
    disk_bytes: int = 4 << 30  # of the workspace; a resumed session keeps what it began with
    output_bytes: int = 64 << 10  # of one command, both ends kept
    get_bytes: int = 16 << 20  # of one file read back
    snapshot_bytes: int = 64 << 20  # of all files of a snapshot
    snapshot_files: int = 10_000


@dataclass(frozen=True)
class SandboxSpec:
    """What to start. ``state_dir`` is a host folder of this session alone, with the workspace."""

    session_id: str
    owner: str  # opaque name of the orchestrator process; `reap` asks whether it still lives
    state_dir: Path
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    gpus: tuple[str, ...] = ()  # UUIDs
    doors: Mapping[str, Path] = field(default_factory=dict)  # name -> Unix socket of the host
    image: str = ""  # docker alone: one with tools of its own, instead of ``mounts``
    reserves_memory: bool = False
    """Its programs reserve far more address space than they use, as JavaScript engines do: that is
    not capped, memory is where the kind can."""


@dataclass(frozen=True)
class ExecResult:
    """One finished command: stdout and stderr as one stream, in order."""

    exit_code: int | None  # None when it was killed by the timeout
    output: bytes  # head and tail when longer than the limit, with a line between that says so
    dropped_bytes: int
    timed_out: bool
    duration_s: float


@dataclass(frozen=True)
class SnapshotFile:
    """One regular file of the workspace. Links, devices, sockets and FIFOs are never followed."""

    path: str  # relative to the workspace, forward slashes
    data: bytes
    executable: bool


@dataclass(frozen=True)
class Snapshot(Sequence[SnapshotFile]):
    """Files of a workspace, sorted by path, and what of it they do not show."""

    files: tuple[SnapshotFile, ...]
    left_out: tuple[str, ...] = ()  # a line each, "path: reason", safe to print

    @overload
    def __getitem__(self, index: int) -> SnapshotFile: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SnapshotFile, ...]: ...
    def __getitem__(self, index: int | slice) -> SnapshotFile | tuple[SnapshotFile, ...]:
        return self.files[index]

    def __len__(self) -> int:
        return len(self.files)


class Sandbox(Protocol):
    """A running sandbox."""

    kind: str

    @property
    def home(self) -> str:
        """The workspace's path as seen by commands."""
        ...

    @property
    def doors(self) -> Mapping[str, str]:
        """Name -> ``127.0.0.1:port`` as seen by commands, of each door of the spec.

        What connects there talks to the door's socket on the host; there is no other way out.
        """
        ...

    def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> ExecResult:
        """Run a command in the workspace, stdin closed; at the timeout its whole tree is killed.

        ``on_output`` is given all of the output as it comes, on this thread; the result's is capped
        all the same. Time in which the sandbox stands still (`freeze`) does not count.

        Raises SandboxGone when the sandbox itself died. A command's failure is an exit code.
        """
        ...

    def put(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file of the workspace (parents made), or replace it. Raises OutsideWorkspace.

        Paths are relative to `home`, or absolute below it, here and in `get`.
        """
        ...

    def get(self, path: str) -> bytes:
        """Read a regular file. Raises FileNotFoundError, IsADirectoryError, FileTooLarge.

        Links, devices, sockets and FIFOs raise OutsideWorkspace.
        """
        ...

    def snapshot(self) -> Snapshot:
        """The regular files of the workspace; `left_out` names all that is not among them.

        Small files come first, so that no giant takes their place. Never among them: what tools
        derive (`sandboxes.names`), links and special files, and names that no archive can hold.
        """
        ...

    def freeze(self) -> None:
        """Make all that runs inside stand still; new commands wait. Idempotent."""
        ...

    def thaw(self) -> None:
        """Let it go on. Idempotent."""
        ...

    def close(self) -> None:
        """Kill everything inside. The workspace stays. Idempotent."""
        ...


class SandboxProvider(Protocol):
    """One kind of sandbox."""

    kind: str

    def unavailable_reason(self) -> str | None:
        """None when this machine can run it; else what is missing and the command that fixes it."""
        ...

    def shortcomings(self) -> Sequence[str]:
        """What of the limits and filters this machine does not let it enforce, a line each."""
        ...

    def start(self, spec: SandboxSpec) -> Sandbox:
        """Start. Raises SandboxUnavailable or SandboxStartFailed."""
        ...

    def reap(self, is_live: Callable[[str], bool]) -> Sequence[str]:
        """Remove what dead owners left; returns a line for each thing removed. Live ones never."""
        ...
