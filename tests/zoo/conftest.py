"""Grade a hostile submission, and look at what is left of it."""

import gc
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from graders import processes
from graders.base import GradeRequest
from graders.pipeline import RefereeGrader
from hostile.base import Attack
from sandboxes import cgroup
from sandboxes.base import Limits
from tasks.loader import read_task
from tasks.spec import Task
from transcripts.records import Grade
from transcripts.words import GradeResult

LIBRARY = Path(__file__).parents[1] / "graders" / "library"
LIMITS = {"build_s": 3.0, "call_s": 1.0, "total_s": 20.0}
"""Seconds. Importing numpy is part of no build, a honest call takes a millisecond."""
PLACES = ("/", "/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", str(Path.home()), str(Path.cwd()))
PATIENCE_S = 3.0


@dataclass(frozen=True)
class Traces:
    """What this process holds, and what it has started."""

    descriptors: int
    memfds: int
    threads: int
    children: tuple[str, ...]
    orphans: frozenset[int]

    @classmethod
    def now(cls) -> "Traces":
        gc.collect()
        maps = Path("/proc/self/maps").read_text()
        return cls(
            descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208
            memfds=maps.count("/memfd:"),
            threads=threading.active_count(),
            children=tuple(line.name for line in processes.tree(os.getpid())[1:]),
            orphans=frozenset(_orphans()),
        )


def _orphans() -> Iterator[int]:
    """Processes with a grade's mark that nobody of ours is above."""
    marked = set(processes.marked("GRADING_MARK="))
    yield from (
        line.pid for line in processes.process_table() if line.pid in marked and line.parent == 1
    )


@dataclass
class Zoo:
    """One grading process with its own folder for scratch, and the submissions in it."""

    task: Task
    scratch: Path  # all that graders write
    folders: Path  # submissions
    device: str = "cpu"
    deadlines: Mapping[str, float] = field(default_factory=LIMITS.copy)

    def limits(self, attack: Attack) -> dict[str, float]:
        """Deadlines of its grade, in seconds."""
        return {**self.deadlines, **attack.limits}

    def grade(self, attack: Attack) -> Grade:
        """The grade of an attack."""
        limits = self.task.limits.model_copy(update=self.limits(attack))
        task = self.task.model_copy(update={"limits": limits})
        return self._graded(task, self._written(attack.files), attack.options)

    def honest(self, *, whole: bool = True) -> GradeResult:
        """What the oracle gets now; with its probes, if ``whole``, else in its calls only."""
        folder = self.task.folder / "submissions" / "oracle"
        if whole:
            return self._graded(self.task, folder, {}).result
        return RefereeGrader().check(GradeRequest(self.task, folder, device=self.device)).result

    def left(self, before: Traces) -> dict[str, object]:
        """What is there that was not; after a moment, for what is just leaving."""
        until = time.monotonic() + PATIENCE_S
        while (left := self._difference(before)) and time.monotonic() < until:
            threading.Event().wait(0.05)
        return left

    def _difference(self, before: Traces) -> dict[str, object]:
        now = Traces.now()
        found = {
            "descriptors": now.descriptors - before.descriptors,
            "memfds": now.memfds - before.memfds,
            "threads": now.threads - before.threads,
            "children": now.children,
            "orphans": now.orphans - before.orphans,
            "scratch": sorted(self.scratch.iterdir()),
            "files": self._files(),
        }
        return {name: value for name, value in found.items() if value}

    def _files(self) -> list[str]:
        """Files of an attack's making: they carry the mark of this zoo."""
        places = (*PLACES, str(Path(np.__file__).parents[1]), str(self.task.folder))
        return [
            f"{place}/{name}"
            for place in dict.fromkeys(places)
            for name in (os.listdir(place) if Path(place).is_dir() else ())  # noqa: PTH208
            if self.mark in name
        ]

    @staticmethod
    def has_groups() -> bool:
        """True where workers get a cgroup of their own."""
        group = cgroup.make(f"zoo-{secrets.token_hex(8)}", Limits())
        if group is not None:
            group.remove()
        return group is not None

    @staticmethod
    def traces() -> Traces:
        """What there is now."""
        return Traces.now()

    @property
    def mark(self) -> str:
        return f"hostile-{self.folders.name}"

    def _written(self, files: Mapping[str, str]) -> Path:
        folder = self.folders / str(len(os.listdir(self.folders)))  # noqa: PTH208
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("@MARK@", self.mark))
        return folder

    def _graded(self, task: Task, folder: Path, options: Mapping[str, object]) -> Grade:
        given = {"tier": "quick", "correctness_only": True, "device": self.device, **options}
        return RefereeGrader().grade(GradeRequest(task, folder, **given))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def warm() -> None:
    """What a grading process opens once and keeps, its thread that starts processes among it."""
    task = read_task(LIBRARY / "scaled-row-sum")
    RefereeGrader().grade(GradeRequest(task, task.folder / "submissions" / "oracle", tier="quick"))


@pytest.fixture
def zoo(
    warm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Zoo]]:
    """A zoo for a task of the library; graders write below a folder that other uids can enter."""
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        Path(scratch).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", scratch)
        folders = tmp_path / secrets.token_hex(8)
        folders.mkdir()
        yield lambda name, device="cpu", deadlines=LIMITS: Zoo(
            small(name), Path(scratch), folders, device, deadlines
        )


def small(name: str) -> Task:
    """A task of the library with the first two of its shapes."""
    task = read_task(LIBRARY / name)
    return task.model_copy(update={"shapes": task.shapes[:2]})
