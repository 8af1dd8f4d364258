"""The calls that probes make: drawn, answered, compared, and watched for what they leave."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graders.buffers import CallMemory, room_for
from graders.candidate import Arrays, Candidate, Draw
from graders.closeness import compare_all
from graders.correctness import unclean
from graders.referee import Answer, WorkerSession
from tasks.rawfloats import BITS
from tasks.spec import Shape
from transcripts.records import CheckResult


@dataclass(frozen=True)
class Known:
    """A draw and what the reference makes of it."""

    draw: Draw
    expected: Sequence[Arrays]

    @property
    def room(self) -> int:
        """Bytes for the outputs of any call."""
        return max(room_for(outputs) for outputs in self.expected)


class ProbeCalls:
    """Calls of one submission in one worker."""

    def __init__(self, candidate: Candidate, session: WorkerSession, seed: str) -> None:
        self.candidate, self.session, self.seed = candidate, session, seed
        self._draws = itertools.count()
        self.changed: set[str] = set()
        self.types: set[str] = set()

    def draw(self, shape: Shape) -> Draw:
        """Fresh inputs."""
        return self.candidate.draw(shape, f"{self.seed}/probe/{next(self._draws)}")

    def known(self, shape: Shape) -> Known:
        """Fresh inputs and their results."""
        draw = self.draw(shape)
        return Known(draw, self.candidate.expected(draw))

    def dice(self, what: str) -> random.Random:
        """Choices of one probe, from the seed of the plan."""
        return random.Random(f"{self.seed}/{what}")  # noqa: S311

    def sizes(self, known: Known) -> list[int]:
        """Bytes of every output of a call."""
        raw = self.candidate.task.interface.raw_outputs
        return [
            leaf.size * np.dtype(BITS.get(raw.get(name, ""), leaf.dtype)).itemsize
            for name, leaf in known.expected[0].items()
        ]

    def sequence(
        self, known: Known, *, same_memory: bool = False, room: int = 0, **how: object
    ) -> list[Answer]:
        """Set up and make all calls; in the memory of the last call where that is asked for."""
        limit = self.candidate.task.limits.call_s
        self.session.setup(known.draw.params, limit)
        room = room or known.room
        answers = []
        for inputs in known.draw.calls:
            kept = same_memory and self.session.overwrite(inputs, room)
            fresh = None if kept else CallMemory(inputs, room)
            answers.append(self.session.go(fresh, limit, {"watch": True, **how}))
            self._hygiene(inputs, answers[-1])
        return answers

    def wrong(self, known: Known, answers: Sequence[Answer]) -> str:
        """What is wrong with the answers; empty when nothing is."""
        triples = zip(answers, known.expected, known.draw.calls, strict=True)
        for n, (answer, wanted, inputs) in enumerate(triples):
            for close in compare_all(self.candidate.task, None, answer.outputs, wanted, inputs):
                if not close.passed:
                    return f"call {n}: {close.leaf}: {close.detail}"
        return ""

    def _hygiene(self, inputs: Arrays, answer: Answer) -> None:
        for line in unclean(self.session, self.candidate, inputs, answer):
            (self.changed if line.startswith("input") else self.types).add(line)

    def timed_ms(self, draw: Draw, room: int) -> float:
        """Milliseconds of all calls of a draw, by the referee's clock."""
        limit = self.candidate.task.limits.call_s
        self.session.setup(draw.params, limit)
        answers = [self.session.timed_call(inputs, room, limit) for inputs in draw.calls]
        return sum(answer.elapsed_ns for answer in answers) / 1e6


def checked(check: str, mechanism: str, told: Sequence[str], **evidence: object) -> CheckResult:
    """The result of a probe: failed when there is something to tell."""
    return CheckResult(
        check=check,
        passed=not told,
        mechanism=mechanism,
        detail="; ".join(told)[:1000],
        evidence=evidence,  # type: ignore[arg-type]
    )


def not_run(check: str, mechanism: str, why: str) -> CheckResult:
    """A probe that was not run, and why."""
    return CheckResult(check=check, passed=None, mechanism=mechanism, detail=why[:1000])
