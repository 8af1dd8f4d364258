"""From what a user asked for to a sweep that is ready to run."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Literal

from graders.pipeline import RefereeGrader
from orchestrator import __version__
from orchestrator.agents.base import Agent
from orchestrator.agents.chosen import chosen_agent, suited
from orchestrator.agents.loop import LoopAgent
from orchestrator.engines.local import LocalEngine
from orchestrator.errors import UserError
from orchestrator.gateway.tunnel import allowed_hosts
from orchestrator.grading import chosen_isolation
from orchestrator.models.connect import client
from orchestrator.models.entry import ModelEntry
from orchestrator.models.roster import load_roster
from orchestrator.pacing import accounts_of, gate_for
from orchestrator.plan import SweepPlan, expand
from orchestrator.progress import Progress
from orchestrator.session import SessionParts
from orchestrator.sharing import Wanted, chosen_devices
from orchestrator.sweep import Sweep
from orchestrator.turns.turns import Turns
from sandboxes.base import Limits
from sandboxes.errors import SandboxUnavailable
from sandboxes.registry import default_kind, provider
from tasks.deck import deck_tasks, load_deck
from tasks.errors import UnknownTask
from tasks.spec import Task
from transcripts.owner import this_process
from transcripts.records import Budget, Entrant
from transcripts.store import Archive


@dataclass(frozen=True)
class SweepRequest:
    """A sweep as asked for."""

    archive: Path
    models: Sequence[str]
    deck: str
    agent: str = LoopAgent.name  # or a harness's name
    allow_net: Sequence[str] = ()  # hosts that sessions may reach
    tasks: Sequence[str] = ()
    attempts: int = 1
    concurrency: int | None = None  # sessions at once of each model; None: as providers bear
    sandbox: str = "auto"
    tier: Literal["quick", "full"] = "full"
    budget: Budget = field(default_factory=Budget)
    config: Path | None = None
    devices: Wanted = field(default_factory=Wanted)
    max_cost_usd: float | None = None  # of the whole sweep, earlier runs included
    image: str = ""  # of docker sandboxes, instead of the host's tools
    disk_bytes: int = Limits.disk_bytes  # of each session's workspace


@contextmanager
def prepared(request: SweepRequest, progress: Progress) -> Iterator[Sweep]:
    """A sweep on an open archive, its servers started; stops them at the end.

    Everything that a user can get wrong is found here, before anything runs or is written.
    """
    roster = load_roster(request.config)
    tasks = chosen_tasks(request.deck, request.tasks)
    entries = [roster.resolve(name) for name in dict.fromkeys(request.models)]
    entries = [suited(request.agent, entry) for entry in entries]
    for entry in entries:
        entry.read_key()
    devices = chosen_devices(tasks, request.deck, request.devices, progress.say)
    kind = chosen_sandbox(request.sandbox, progress.say)
    for line in provider(kind).shortcomings():
        progress.say(f"sandbox {kind}: {line}")
    with (
        chosen_agent(request.agent, kind, request.allow_net) as agent,
        _stopped_by_signals(progress.say) as stop,
    ):
        network = network_of(request.allow_net)
        entrants = [(e, entrant_of(e, agent, request.budget, network)) for e in entries]
        cells = expand(request.deck, tasks, entrants)
        archive = Archive.open(request.archive, create=True)
        plan = _plan(request, tasks, [entrant for _, entrant in entrants], agent.name, kind)
        parts = SessionParts(
            agent=agent,
            provider=provider(kind),
            grader=RefereeGrader(),
            isolation=chosen_isolation("auto", progress.say),
            owner=this_process(),
            connect=lambda entry: client(entry, stopping=stop),
            secrets=roster.secrets(),
            budget=request.budget,
            stop=stop,
            turns=Turns(progress.say),
            devices=devices,
            seats=devices.seats(),
            limits=Limits(disk_bytes=request.disk_bytes),
            image=_image(request.image, kind),
        )
        lanes = [(entrant.digest, entry) for entry, entrant in entrants]
        engine = LocalEngine(gate_for(lanes, request.concurrency))
        progress.accounts = accounts_of(entries)
        yield Sweep(
            archive,
            cells,
            request.attempts,
            parts,
            engine,
            progress,
            archive.save_plan(plan.model_dump(mode="json")),
            request.max_cost_usd,
        )


def chosen_tasks(deck: str, names: Sequence[str]) -> list[Task]:
    """The deck's tasks, or those of them that were named."""
    tasks = deck_tasks(load_deck(deck))
    known = {task.name: task for task in tasks}
    for name in names:
        if name not in known:
            raise UnknownTask(f"deck `{deck}` has no task `{name}`; it has: {', '.join(known)}")
    return [task for task in tasks if not names or task.name in names]


def network_of(hosts: Sequence[str]) -> str:
    """See `Entrant.network`. Raises BadHost."""
    allowed = sorted(f"{host}:{port}" for host, port in allowed_hosts(hosts))
    return ",".join(allowed) or "none"


def entrant_of(entry: ModelEntry, agent: Agent, budget: Budget, network: str = "none") -> Entrant:
    """Who is measured when this model is driven by this agent within this budget."""
    model, route = entry.entrant_identity()
    return Entrant(
        model=model,
        route=route,
        harness=agent.name,
        harness_version=agent.version,
        effort=entry.effort,
        sampling=entry.sampling,
        budget=budget,
        network=network,
        prompt_digest=agent.prompt_digest,
    )


def chosen_sandbox(wanted: str, say: Callable[[str], None]) -> str:
    """The kind to use. Without Docker and bubblewrap: `process`, and said loudly."""
    if wanted != "auto":
        reason = provider(wanted).unavailable_reason()
        if reason:
            raise SandboxUnavailable(f"sandbox `{wanted}`: {reason}")
        return wanted
    try:
        return default_kind()
    except SandboxUnavailable as reason:
        say(f"WARNING: NO SANDBOX. {reason}")
        say("WARNING: sessions run as plain processes of this user; their cells are marked.")
        return "process"


def _image(name: str, kind: str) -> str:
    """The id of the image that was named, so that all of a sweep runs in the same."""
    if not name:
        return ""
    if kind != "docker":
        raise UserError(f"--image is for docker sandboxes, and this sweep uses {kind}")
    from sandboxes.docker_images import identity  # noqa: PLC0415 - the SDK is heavy

    return identity(name)


def _plan(
    request: SweepRequest, tasks: Sequence[Task], entrants: Sequence[Entrant], agent: str, kind: str
) -> SweepPlan:
    return SweepPlan(
        product_version=__version__,
        deck=request.deck,
        task_digests={task.name: task.digest for task in tasks},
        entrants=tuple(entrants),
        attempts=request.attempts,
        agent=agent,
        engine=LocalEngine.name,
        sandbox=kind,
        tier=request.tier,
    )


@contextmanager
def _stopped_by_signals(say: Callable[[str], None]) -> Iterator[threading.Event]:
    """Ctrl-C or SIGTERM once: finish steps and leave sessions resumable; twice: stop now."""
    stop = threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            os._exit(130)  # every finished step is on the disk; sandboxes die with us
        stop.set()
        say(f"{signal.Signals(number).name}: finishing running steps; again to stop at once")

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def split_names(text: str) -> list[str]:
    """`a, b` as given on a command line."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UserError("no names given; say for example --models oracle,naive")
    return names
