"""Sweeps of foreign harnesses, sessions only: no grade takes the machine for itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from orchestrator.launch import SweepRequest, prepared
from orchestrator.progress import Progress
from orchestrator.sweep import SweepResult
from transcripts.events import Event
from transcripts.records import Budget
from transcripts.store import Archive, AttemptFolder

TASK = "kv-cache"


def run_sessions(
    archive: Path,
    agent: str,
    model: str,
    *,
    sandbox: str = "bubblewrap",
    budget: Budget | None = None,
    config: Path | None = None,
    allow_net: Sequence[str] = (),
    mode: Literal["plain", "json"] = "plain",
) -> SweepResult:
    """What `sweep --agent ...` does before it grades."""
    request = SweepRequest(
        archive=archive,
        models=[model],
        deck="rounds",
        agent=agent,
        tasks=[TASK],
        concurrency=1,
        sandbox=sandbox,
        tier="quick",
        budget=budget or Budget(),
        config=config,
        allow_net=allow_net,
    )
    with prepared(request, Progress(mode=mode)) as sweep:
        result = sweep.run_sessions()
    for defect in result.defects:
        raise defect
    return result


def attempts(archive: Path) -> list[AttemptFolder]:
    """All attempts, oldest first."""
    return list(Archive.open(archive, read_only=True).attempts())


def only_attempt(archive: Path) -> AttemptFolder:
    """The one that is there."""
    (found,) = attempts(archive)
    return found


def of(kind: type[Event], folder: AttemptFolder) -> list[Event]:
    """The events of one kind."""
    return [event for event in folder.events() if isinstance(event, kind)]


def notes(folder: AttemptFolder, topic: str) -> list[str]:
    """The texts of the notes on a topic."""
    return [e.text for e in folder.events() if e.kind == "note" and e.topic == topic]
