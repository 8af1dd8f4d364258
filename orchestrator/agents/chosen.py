"""The agent that a sweep was asked for, and whether models and sandboxes suit it."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.agents.base import Agent
from orchestrator.agents.external import external_agent
from orchestrator.agents.externalrun import INSIDE
from orchestrator.agents.harnesses.base import Harness, Route
from orchestrator.agents.install import root_of
from orchestrator.agents.loop import LoopAgent
from orchestrator.agents.registry import HARNESSES, harness
from orchestrator.errors import UserError
from orchestrator.models.entry import ModelEntry
from sandboxes.toolchain import host_toolchain


class AgentDoesNotFit(UserError):
    """The agent cannot run with this model, in this sandbox, or on this machine."""


@contextmanager
def chosen_agent(name: str, sandbox: str, hosts: Sequence[str] = ()) -> Iterator[Agent]:
    """The agent by name, what it needs open. Raises UnknownHarness, NotInstalled, AgentDoesNotFit.

    ``sandbox`` is the kind that its sessions run in, ``hosts`` what these may reach.
    """
    if name == LoopAgent.name:
        if hosts:
            raise AgentDoesNotFit("--allow-net is for harnesses; our own loop has no network")
        yield LoopAgent()
        return
    chosen = harness(name)
    if sandbox == "process":
        raise AgentDoesNotFit(
            f"`{name}` runs in a sandbox into which its installation is mounted, and `process` "
            "mounts nothing; `apt-get install bubblewrap`, or start a Docker Engine"
        )
    missing = missing_program(chosen, root_of(chosen))
    if missing:
        raise AgentDoesNotFit(missing)
    with external_agent(chosen, hosts) as agent:
        yield agent


def missing_program(chosen: Harness, root: Path) -> str:
    """What a harness is started by and sandboxes do not see; empty where it is there."""
    start = chosen.launch(root, INSIDE, Route("http://gateway", "token", "model"), "").argv[0]
    path = host_toolchain(()).env["PATH"]
    if start.startswith("/") or shutil.which(start, path=path):
        return ""
    return (
        f"`{chosen.name}` is started by `{start}`, which is not where sandboxes see it ({path}); "
        "install it there, for example by `apt-get install nodejs`"
    )


def suited(name: str, entry: ModelEntry) -> ModelEntry:
    """The entry as the agent asks it. Raises AgentDoesNotFit, UnknownHarness.

    The built-in models speak every dialect.
    """
    if name == LoopAgent.name:
        return entry
    dialect = harness(name).dialect
    if entry.protocol == dialect:
        return entry
    if entry.is_scripted:
        return entry.model_copy(update={"protocol": dialect})
    others = [known for known in HARNESSES if harness(known).dialect == entry.protocol]
    by = f"harnesses that speak `{entry.protocol}`: {', '.join(others)}. " if others else ""
    raise AgentDoesNotFit(
        f"`{entry.name}` is asked by `{entry.protocol}`, and `{name}` speaks `{dialect}`. {by}"
        f'Or give your roster file an entry with protocol = "{dialect}" and the base URL where '
        "the provider speaks it"
    )
