"""`replay --execute`: the recorded tool calls again in a fresh sandbox, compared step by step."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from orchestrator.players import Player, player_for
from orchestrator.submission import handed_in, staged_files
from sandboxes.base import Sandbox, SandboxSpec
from sandboxes.registry import provider
from sandboxes.scratch import Scratch
from sandboxes.toolchain import host_toolchain
from tasks.loader import load_task
from transcripts.dialects import read_log
from transcripts.keys import new_id
from transcripts.noise import Comparison, compare
from transcripts.owner import this_process
from transcripts.replay import ToolStep, tool_steps
from transcripts.store import AttemptFolder


@dataclass(frozen=True)
class ReplayedStep:
    """One step of both runs. ``comparison`` None: not repeated, or it had no recorded result."""

    step: ToolStep
    actual: str | None
    comparison: Comparison | None


@dataclass(frozen=True)
class Replay:
    """What a replay found. Files are those handed in, by path."""

    steps: list[ReplayedStep]
    same_files: list[str]
    different_files: list[str]
    missing_files: list[str]
    extra_files: list[str]

    @property
    def diverged(self) -> list[ReplayedStep]:
        """Steps whose results differ by more than known noise."""
        return [step for step in self.steps if step.comparison and not step.comparison.same]

    @property
    def faithful(self) -> bool:
        """True when every archived file was rebuilt byte for byte and no result diverged."""
        return not (self.diverged or self.different_files or self.missing_files)


def execute(folder: AttemptFolder, sandbox_kind: str) -> Replay:
    """Play the tool calls of a sealed attempt again. No model is asked.

    Raises UserError for dialects whose tools are not known, SandboxError.
    """
    steps = tool_steps(folder.events())
    staged: Mapping[str, bytes] = {}
    if folder.record.origin == "session":
        staged = staged_files(load_task(folder.record.cell.task), folder.id)
    with _sandbox(sandbox_kind, staged) as sandbox:
        player = _player(folder, sandbox)
        played = [_played(player, step, folder) for step in steps]
        files = {p: f.data for p, f in handed_in(sandbox.snapshot(), staged).items()}
    return _compared(folder, played, files)


@contextmanager
def _sandbox(kind: str, staged: Mapping[str, bytes]) -> Iterator[Sandbox]:
    toolchain = host_toolchain()
    with Scratch("replay") as scratch:
        spec = SandboxSpec(
            session_id=new_id(),
            owner=this_process(),
            state_dir=scratch.folder(),
            mounts=toolchain.mounts,
            env=toolchain.env,
        )
        sandbox = provider(kind).start(spec)
        try:
            for path, data in staged.items():
                sandbox.put(path, data)
            yield sandbox
        finally:
            sandbox.close()


def _player(folder: AttemptFolder, sandbox: Sandbox) -> Player:
    record = folder.record
    if record.source is None:
        task = load_task(record.cell.task)
        return player_for(record.entrant.harness, sandbox, task.interface.file, None)
    original = folder.path / f"source.{record.source.file_name}"
    log = read_log(original, record.source.dialect)
    return player_for(record.source.dialect, sandbox, "", log.cwd)


def _played(player: Player, step: ToolStep, folder: AttemptFolder) -> ReplayedStep:
    actual = player.play(step)
    recorded = step.result
    if step.blob is not None:
        recorded = folder.blob(step.blob).decode("utf-8", "surrogateescape")
    if actual is None or recorded is None or step.status == "interrupted":
        return ReplayedStep(step, actual, None)
    return ReplayedStep(step, actual, compare(recorded, actual))


def _compared(
    folder: AttemptFolder, steps: list[ReplayedStep], files: Mapping[str, bytes]
) -> Replay:
    root = folder.submission_dir
    archived = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
    both = archived.keys() & files.keys()
    same = [path for path in sorted(both) if archived[path] == files[path]]
    return Replay(
        steps=steps,
        same_files=same,
        different_files=sorted(both - set(same)),
        missing_files=sorted(archived.keys() - files.keys()),
        extra_files=sorted(files.keys() - archived.keys()) if archived else [],
    )
