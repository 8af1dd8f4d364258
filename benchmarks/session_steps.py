"""What a step of our own loop costs: CPU of the whole process tree, memory, bytes written.

    python benchmarks/session_steps.py [--sandbox process,bubblewrap] [--steps 500,1000,2000]

Two parts, each in a process of its own, against a scripted server whose CPU is shown apart:

- *short*: ``--sessions`` sessions of 20 steps with small results, start-up, sandboxes and sealing
  included; the figure to hold beside other runners. Goals: 4 ms (`process`), 6 ms (`bubblewrap`).
- *long*: one session per entry of ``--steps`` with 8 KiB of output a step, in a window of
  ``--window`` tokens, which it fills at about step 20 and then again and again. Medians around
  step 20 and at the end are compared; goal: at most 1.5 times.

The tree is this process and all that it started, our sandboxes' supervisors and their commands
included; ``shell`` is the same command in the same sandbox without a loop, at the same moment: it
says how busy the machine was. Nothing is graded: a cap of steps ends each session before its
hand-in.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from orchestrator.agents.base import Standing
from orchestrator.launch import SweepRequest, prepared
from orchestrator.progress import Progress
from sandboxes.base import SandboxSpec
from sandboxes.registry import provider
from sandboxes.toolchain import host_toolchain
from transcripts.records import Budget

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
AROUND = 20
"""Steps whose mean cost stands for a point: the kernel counts CPU in ticks of 10 ms."""
RESULT_BYTES = 8192
COMMANDS = 100

ROSTER = """
[models.bench]
protocol = "openai"
model = "longhaul?steps={steps}&output_bytes={output}"
base_url = "{url}"
context_tokens = {window}
"""


def tree_cpu_s(root: int) -> float:
    """CPU seconds of a process, its descendants, and those of them that have ended."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        used[int(entry.name)] = sum(map(int, fields[11:15])) * TICK_S
    ours = {root}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used.get(pid, 0.0) for pid in ours)


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def written_bytes() -> int:
    """Bytes that this process caused to be written to storage."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


class Sampler(Progress):
    """Notes CPU, memory and writes each ``AROUND`` steps of a session."""

    def __init__(self, *, samples: bool) -> None:
        super().__init__(live=False)
        self._samples = samples  # looking at every process costs as much as a step
        self.samples: list[tuple[int, float, float, int]] = []

    def say(self, text: str) -> None:
        """Nothing: the table is what is printed."""

    def step(self, session: str, at: Standing) -> None:
        """See `Progress.step`."""
        super().step(session, at)
        if self._samples and at.step % AROUND == 0:
            sample = (at.step, tree_cpu_s(os.getpid()), resident_mb(), written_bytes())
            if not self.samples or self.samples[-1][0] != at.step:
                self.samples.append(sample)


@contextmanager
def scripted_server() -> Iterator[tuple[int, str]]:
    """Its process id and the base URL of chat completions."""
    command = [sys.executable, "-m", "orchestrator", "--json", "serve-scripted", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            urls = json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")
            yield server.pid, urls["openai"]
        finally:
            server.terminate()


def run(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """One sweep in this process; figures by name."""
    roster = folder / "models.toml"
    roster.write_text(
        ROSTER.format(
            steps=options.steps + 1,
            output=options.output,
            url=options.url,
            window=options.window,
        )
    )
    request = SweepRequest(
        archive=folder / "archive",
        models=["bench"],
        deck="rounds",
        tasks=["layernorm-backward"],
        attempts=options.sessions,
        concurrency=options.concurrency,
        sandbox=options.sandbox,
        budget=Budget(max_steps=options.steps),
        config=roster,
    )
    sampler, started, server = (
        Sampler(samples=options.sessions == 1),
        time.monotonic(),
        tree_cpu_s(options.server),
    )
    with prepared(request, sampler) as sweep:
        result = sweep.run_sessions()
    assert not result.defects, result.defects
    assert len(result.ended) == options.sessions, result
    steps = options.steps * options.sessions
    figures = {
        "ms": tree_cpu_s(os.getpid()) * 1e3 / steps,  # imports and start-up included
        "server_ms": (tree_cpu_s(options.server) - server) * 1e3 / steps,
        "wall_s": time.monotonic() - started,
        "rss_mb": resident_mb(),
        "written_kb": written_bytes() / steps / 1e3,
    }
    figures["shell_ms"] = shell_ms(options.sandbox, options.output, folder)
    if options.sessions == 1:
        figures |= points(sampler.samples)
    return figures


def shell_ms(sandbox: str, output: int, folder: Path) -> float:
    """CPU of a step's command alone, in such a sandbox, without a loop around it."""
    toolchain = host_toolchain()
    spec = SandboxSpec("shell", "benchmark", folder, toolchain.mounts, toolchain.env)
    running = provider(sandbox).start(spec)
    command = "echo 1 >> progress.log"
    if output:
        command += f"; head -c {output} /dev/zero | tr '\\0' x"
    started = tree_cpu_s(os.getpid())
    for _ in range(COMMANDS):
        running.exec(["/bin/bash", "-c", command], timeout_s=60)
    cost = tree_cpu_s(os.getpid()) - started
    running.close()
    return cost * 1e3 / COMMANDS


def points(samples: list[tuple[int, float, float, int]]) -> dict[str, float]:
    """Cost of a step once the window is full the first time, and at the end; growth between."""
    costs = [(late[1] - early[1]) * 1e3 / (late[0] - early[0]) for early, late in pairwise(samples)]
    few = max(1, min(5, len(costs) // 3))
    return {
        "early_ms": statistics.median(costs[:few]),
        "late_ms": statistics.median(costs[-few:]),
        "rss_growth_mb": samples[-1][2] - samples[few][2],
    }


def measured(sandbox: str, url: str, server: int, **changes: int) -> dict[str, float]:
    """`run` in a process of its own."""
    flags = [f"--{name}={value}" for name, value in changes.items()]
    command = [sys.executable, __file__, "--one", f"--sandbox={sandbox}", f"--url={url}"]
    done = subprocess.run(
        [*command, f"--server={server}", *flags], stdout=subprocess.PIPE, check=True
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def table(options: argparse.Namespace) -> None:
    """Print both parts."""
    with scripted_server() as (server, url):
        print(
            f"{'short':10} {'sessions':>8} {'ms/step':>8} {'shell':>6} {'server':>7} {'RSS MB':>7} "
            f"{'KB/step':>8}"
        )
        for sandbox in options.sandbox.split(","):
            got = measured(sandbox, url, server, steps=20, sessions=options.sessions, output=0)
            print(
                f"{sandbox:10} {options.sessions:8} {got['ms']:8.2f} {got['shell_ms']:6.2f} "
                f"{got['server_ms']:7.2f} "
                f"{got['rss_mb']:7.0f} {got['written_kb']:8.1f}"
            )
        print(
            f"\n{'long':10} {'steps':>6} {'ms/step':>8} {'shell':>6} {'early':>7} {'late':>7} "
            f"{'ratio':>6} {'server':>7} {'RSS MB':>7} {'growth':>7} {'KB/step':>8}"
        )
        for sandbox in options.sandbox.split(","):
            for steps in map(int, options.steps.split(",")):
                got = measured(
                    sandbox, url, server, steps=steps, output=RESULT_BYTES, window=options.window
                )
                print(
                    f"{sandbox:10} {steps:6} {got['ms']:8.2f} {got['shell_ms']:6.2f} "
                    f"{got['early_ms']:7.2f} {got['late_ms']:7.2f} "
                    f"{got['late_ms'] / got['early_ms']:6.2f} {got['server_ms']:7.2f} "
                    f"{got['rss_mb']:7.0f} {got['rss_growth_mb']:7.1f} {got['written_kb']:8.1f}"
                )


def main() -> None:
    """Both parts, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sandbox", default="process,bubblewrap")
    parser.add_argument("--steps", default="500,1000,2000")
    parser.add_argument("--sessions", type=int)
    parser.add_argument("--window", type=int, default=48_000)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--server", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--concurrency", type=int, default=4)
    options = parser.parse_args()
    if not options.one:
        options.sessions = options.sessions or 50
        table(options)
        return
    options.sessions, options.steps = options.sessions or 1, int(options.steps)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(options, Path(folder))))


if __name__ == "__main__":
    main()
