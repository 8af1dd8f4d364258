"""One submission under grading: its world, its entry, its deadlines, and the draws it is given."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from graders.buffers import room_for
from graders.entry import Entry
from graders.errors import SubmissionFailed
from graders.launch import World
from graders.referee import Answer, WorkerSession
from tasks.spec import Shape, Task
from transcripts.words import GradeResult

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Draw:
    """The inputs of one sequence of calls."""

    params: Mapping[str, Any]
    calls: Sequence[Arrays]


@dataclass(frozen=True)
class Candidate:
    """What every phase needs. ``deadline`` (monotonic) bounds the whole grade."""

    task: Task
    reference: ModuleType
    place: World
    entry: Entry
    device: str
    deadline: float

    def session(self, core: int = -1) -> WorkerSession:
        """A fresh worker with the submission imported. Raises SubmissionFailed, GraderVoid."""
        session = WorkerSession(
            self.place, self.task.limits.memory_bytes, self.deadline, core, self.device
        )
        try:
            outputs = self.task.interface.outputs
            session.build(self.entry, outputs, self.device, self.task.limits.build_s)
        except BaseException:
            session.close()
            raise
        return session

    def draw(self, shape: Shape, seed: str | int) -> Draw:
        """Inputs of a shape from a seed; a text is one that nobody can guess."""
        drawn = number(seed) if isinstance(seed, str) else seed
        made = self.reference.make_inputs({**shape.dims, "dtype": shape.dtype}, drawn)
        return Draw(made["params"], made["calls"])

    def expected(self, draw: Draw) -> Sequence[Arrays]:
        """The reference's outputs, from the referee's own copy of the inputs."""
        outputs: Sequence[Arrays] = self.reference.reference(dict(draw.params), list(draw.calls))
        return outputs

    def check_time(self) -> None:
        """Raises SubmissionFailed when the grade's whole time is spent."""
        if time.monotonic() > self.deadline:
            raise SubmissionFailed(
                GradeResult.TIMEOUT, f"the whole grade took more than {self.task.limits.total_s} s"
            )


def play(
    session: WorkerSession, candidate: Candidate, draw: Draw, expected: Sequence[Arrays]
) -> list[Answer]:
    """Set up, and make the calls of a draw on fresh memory each."""
    limit = candidate.task.limits.call_s
    session.setup(draw.params, limit)
    return [
        session.call(inputs, room_for(wanted), limit)
        for inputs, wanted in zip(draw.calls, expected, strict=True)
    ]


def number(seed: str) -> int:
    """A 63-bit integer for generators, from a text seed."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") >> 1
