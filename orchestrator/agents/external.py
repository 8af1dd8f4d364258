"""Vendors' CLIs as agents: inside the sandbox, through the gateway, understood by the wire.

The CLI is started from a read-only mount of its pinned installation. All that it can reach is a
door to the gateway, which also leads to the session's desk (`check`, `bench`, `submit`). What the
session was is told by the exchanges that the gateway kept and by the CLI's own log; the exit code
says nothing.

A CLI's conversation lives in its own process and store, so a session of a dead orchestrator cannot
go on: `resumable` is False, and the sweep starts a new attempt.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from orchestrator.agents.base import SessionContext
from orchestrator.agents.externalrun import INSIDE, ExternalRun
from orchestrator.agents.harnesses.base import INSTRUCTIONS, Harness, Route
from orchestrator.agents.install import verified
from orchestrator.gateway.server import Gateway
from orchestrator.gateway.tunnel import Tunnel, allowed_hosts
from orchestrator.models.retry import RetryPolicy
from orchestrator.turns.commands import INSIDE as COMMANDS
from orchestrator.turns.commands import command_folder
from sandboxes.base import Mount, SandboxSpec
from sandboxes.scratch import Scratch
from sandboxes.toolchain import BASE_ENV
from transcripts.records import Outcome, digest_of


class ExternalAgent:
    """One harness; sessions share its gateway and its commands. See `Agent`."""

    system_prompt = ""  # the CLI has its own, which is found on the wire
    resumable = False

    def __init__(
        self,
        harness: Harness,
        root: Path,
        gateway: Gateway,
        commands: Mount,
        tunnel: Tunnel | None = None,
    ) -> None:
        self.harness, self.root, self.gateway = harness, root, gateway
        self.name, self.version = harness.name, harness.package.version
        self._commands, self._tunnel = commands, tunnel

    @cached_property
    def prompt_digest(self) -> str:
        """Digest of what we say and configure; the version stands for the CLI's own words.

        The program's path is left out: it names the machine's architecture.
        """
        route = Route("http://gateway", "token", "model")
        launch = self.harness.launch(self.root, INSIDE, route, INSTRUCTIONS)
        words = [*launch.argv[1:], launch.stdin, launch.log_file]
        return digest_of([INSTRUCTIONS, words, dict(launch.env), dict(launch.files)])

    @property
    def versions(self) -> Mapping[str, str]:
        """See `Agent.versions`."""
        package = self.harness.package
        return {self.name: f"{package.registry}:{package.name}@{package.version}"}

    def opening(self, request: str) -> str:
        """See `Agent.opening`."""
        return request + INSTRUCTIONS

    def fitted(self, spec: SandboxSpec) -> SandboxSpec:
        """See `Agent.fitted`."""
        path = f"{COMMANDS}:{spec.env.get('PATH') or BASE_ENV['PATH']}"
        return replace(
            spec,
            mounts=(*spec.mounts, Mount(self.root, INSIDE), self._commands),
            doors={**spec.doors, **self._doors()},
            env={**spec.env, "PATH": path},
            reserves_memory=True,
        )

    def _doors(self) -> dict[str, Path]:
        net = {"net": self._tunnel.path} if self._tunnel else {}
        return {"gateway": self.gateway.socket, **net}

    def run(self, context: SessionContext) -> Outcome:
        """Run the CLI to its end; see `Agent.run`."""
        return ExternalRun(self.harness, self.root, self.gateway, context).outcome()


@contextmanager
def external_agent(
    harness: Harness, hosts: Sequence[str] = (), policy: RetryPolicy | None = None
) -> Iterator[ExternalAgent]:
    """The agent of an installed harness, its gateway open, and a tunnel to ``hosts`` if there are.

    Raises NotInstalled, BadHost.
    """
    root, allowed = verified(harness), allowed_hosts(hosts)
    with ExitStack() as stack:
        folder = stack.enter_context(Scratch("commands")).folder()
        gateway = stack.enter_context(Gateway(policy))
        tunnel = None
        if allowed:
            tunnel = stack.enter_context(Tunnel(allowed, gateway.admission_of))
        yield ExternalAgent(harness, root, gateway, command_folder(folder), tunnel)
