"""A trial of an installed harness: a whole session against the scripted server, on this host.

It shows that the CLI starts here, speaks its dialect, uses its tools, ends, and that its log agrees
with the wire. It is not sandboxed: what is played is our own story, not a model's.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agents.agreement import WireCall, disagreements, wire_call
from orchestrator.agents.harnesses.base import (
    INSTRUCTIONS,
    Harness,
    NativeLog,
    Route,
    log_of,
    script,
)
from orchestrator.agents.install import root_of
from orchestrator.models.knobs import Knobs
from orchestrator.models.scripted import ScriptedServer
from sandboxes.scratch import Scratch
from tasks.loader import load_task

TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Trial:
    """What happened."""

    exit_code: int | None  # None when it was killed by the timeout
    log: str  # the CLI's own
    stderr: str
    native: NativeLog
    wire: tuple[WireCall, ...]
    files: tuple[str, ...]  # of the workspace, afterwards

    @property
    def disagreements(self) -> tuple[str, ...]:
        """See `agreement.disagreements`."""
        return disagreements(self.native, self.wire)


def try_harness(
    harness: Harness, task_name: str, *, model: str = "oracle", knobs: Knobs | None = None
) -> Trial:
    """Play ``model``'s session of a task. Raises NotInstalled, InstallBroken, TaskError."""
    wire: list[WireCall] = []

    def answered(message: dict[str, object]) -> None:
        wire.append(wire_call(harness.dialect, message))

    with ScriptedServer(knobs, on_answer=answered) as server:
        return play(harness, task_name, server.base_url(harness.dialect), model, wire)


def play(
    harness: Harness, task_name: str, base_url: str, model: str, wire: list[WireCall]
) -> Trial:
    """Run the CLI once against ``base_url`` in a scratch workspace; ``wire`` fills meanwhile."""
    task, root = load_task(task_name), root_of(harness)
    route = Route(base_url.removesuffix("/v1beta"), "no-key-is-needed", model)
    launch = harness.launch(root, str(root), route, task.prompt + INSTRUCTIONS)
    with Scratch("trial") as scratch:
        folder = scratch.folder()
        env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **launch.env}
        code, output = _run(script(launch), env, folder)
        files = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    log, stderr = log_of(output)
    return Trial(code, log, stderr, harness.read(log), tuple(wire), tuple(sorted(files)))


def _run(argv: list[str], env: dict[str, str], folder: Path) -> tuple[int | None, bytes]:
    process = subprocess.Popen(
        argv, env=env, cwd=folder, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, _ = process.communicate()
        return None, output
    return process.returncode, output
