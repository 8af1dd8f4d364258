"""Many sessions in one process: memory, CPU a step, sessions a minute.

The scripted server runs in a process of its own and is not counted; neither are the commands in
the sandboxes, whose CPU is said apart. Sessions are capped at ``--steps``, so nothing is graded.

    python benchmarks/many_sessions.py memory      256 at once, 50 steps, in one process
    python benchmarks/many_sessions.py pace        64 at once, 20 steps, 200 ms model latency
    python benchmarks/many_sessions.py all [--sandbox bubblewrap]
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from graders.pipeline import RefereeGrader
from orchestrator.agents.loop import LoopAgent
from orchestrator.engines.local import LocalEngine
from orchestrator.launch import entrant_of
from orchestrator.models.accounts import account_of
from orchestrator.models.connect import client
from orchestrator.models.retry import RetryPolicy
from orchestrator.models.roster import load_roster
from orchestrator.pacing import gate_for
from orchestrator.plan import PlannedCell, cell_key
from orchestrator.progress import Progress
from orchestrator.session import SessionParts
from orchestrator.sweep import Sweep
from sandboxes.registry import provider
from tasks.loader import load_task
from transcripts.owner import this_process
from transcripts.records import Budget
from transcripts.store import Archive


@dataclass(frozen=True)
class Setting:
    """One run."""

    sessions: int
    at_once: int
    steps: int
    latency_ms: float
    sandbox: str
    protocol: str = "openai"


SETTINGS = {
    "memory": Setting(256, 256, 50, 0, ""),
    "pace": Setting(128, 64, 20, 200, ""),
}


def main() -> None:
    """Run what was asked for; a line each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", choices=[*SETTINGS, "all", "one"], default="all", nargs="?")
    parser.add_argument("--sandbox", choices=["process", "bubblewrap", "both"], default="both")
    parser.add_argument("--sessions", type=int)
    parser.add_argument("--folder", type=Path, help="Where the archive is made.")
    options = parser.parse_args()
    kinds = ["process", "bubblewrap"] if options.sandbox == "both" else [options.sandbox]
    for name in SETTINGS if options.what == "all" else [options.what]:
        for kind in kinds:
            chosen = replace(SETTINGS[name], sandbox=kind)
            if options.sessions:
                chosen = replace(chosen, sessions=options.sessions)
            if options.what == "all":  # peak memory is a process's: each run has its own
                command = [sys.executable, __file__, name, "--sandbox", kind]
                command += ["--sessions", str(options.sessions)] if options.sessions else []
                subprocess.run(command, check=True)
            else:
                report(name, chosen, measure(chosen, options.folder))


@contextmanager
def served(latency_ms: float) -> Iterator[dict[str, str]]:
    """The scripted server's URLs by protocol."""
    command = [sys.executable, "-m", "orchestrator", "--json", "serve-scripted", "--port", "0"]
    command += ["--latency-ms", str(latency_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")
        finally:
            server.terminate()


@dataclass(frozen=True)
class Figures:
    """Of one run."""

    wall_s: float
    cpu_s: float  # of this process alone
    children_s: float  # of the sandboxes
    peak_mb: float
    steps: int
    ended: int
    threads: int


def measure(setting: Setting, folder: Path | None) -> Figures:
    """Run the sessions."""
    with (
        served(setting.latency_ms) as urls,
        tempfile.TemporaryDirectory(dir=folder) as scratch,
    ):
        progress = Progress(mode="live")
        sweep = sweep_of(setting, urls[setting.protocol], Path(scratch), progress)
        watch = _Watch()
        before = (
            resource.getrusage(resource.RUSAGE_SELF),
            resource.getrusage(resource.RUSAGE_CHILDREN),
        )
        started = time.monotonic()
        result = sweep.run_sessions()
        wall = time.monotonic() - started
        after = (
            resource.getrusage(resource.RUSAGE_SELF),
            resource.getrusage(resource.RUSAGE_CHILDREN),
        )
        assert not result.defects, result.defects
        assert not result.resumable, result.resumable[:3]
        own, children = (
            b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime
            for a, b in zip(before, after, strict=True)
        )
        peak = after[0].ru_maxrss / 1024
        steps = progress.view().steps
        return Figures(wall, own, children, peak, steps, len(result.ended), watch.stop())


def sweep_of(setting: Setting, url: str, scratch: Path, progress: Progress) -> Sweep:
    """One cell of so many attempts: the hardest case for claims."""
    archive = Archive.open(scratch / "archive", create=True)
    agent, budget = LoopAgent(), Budget(max_steps=setting.steps)
    entry = load_roster().resolve(f"longhaul?steps={setting.steps + 1}")
    entry = entry.model_copy(update={"protocol": setting.protocol})
    entrant, task = entrant_of(entry, agent, budget), load_task("layernorm-backward")
    policy = RetryPolicy(account=account_of(url, None))
    parts = SessionParts(
        agent=agent,
        provider=provider(setting.sandbox),
        grader=RefereeGrader(),
        isolation="process",
        owner=this_process(),
        connect=lambda entry: client(entry, base_url_override=url, policy=policy),
        budget=budget,
    )
    cell = PlannedCell(cell_key("rounds", task, entrant), task, entry, entrant)
    gate = gate_for([(entrant.digest, entry.model_copy(update={"base_url": url}))], setting.at_once)
    engine = LocalEngine(gate)
    plan = archive.save_plan({"benchmark": setting.sandbox})
    return Sweep(archive, [cell], setting.sessions, parts, engine, progress, plan)


class _Watch:
    """The most threads at once."""

    def __init__(self) -> None:
        self._most, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.wait(0.2):
            self._most = max(self._most, threading.active_count())

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self._most


def report(name: str, setting: Setting, got: Figures) -> None:
    """One line."""
    print(
        f"{name:7} {setting.sandbox:10}  {got.ended} sessions, {setting.at_once} at once, "
        f"{got.steps} steps: {got.ended * 60 / got.wall_s:.0f} sessions/min, "
        f"{got.cpu_s * 1000 / got.steps:.2f} ms CPU a step "
        f"(+{got.children_s * 1000 / got.steps:.2f} in sandboxes), peak {got.peak_mb:.0f} MB, "
        f"{got.threads} threads, {got.wall_s:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
