"""Timing by the referee's clock: single calls, each with its own *go*.

Why the figure holds whatever the worker does:

1. Nothing starts early: a call's inputs are a fresh draw from a secret seed, written while every
   process of the worker is stopped, or into memory that it gets with *go*; the clock starts before
   they are let run.
2. The clock stops when no process of the worker can change the outputs any more (they are copied,
   or all are seen stopped), and it is these outputs that are compared: of the first
   ``VERIFIED_FIRST`` calls, then of a random half of the draws, and always of the last draw.
3. Calls cannot be merged or skipped: the next inputs do not exist before the last outputs are in.
4. No part rests on what the worker reports.
5. Nothing is subtracted; what the same trip costs with a worker of our own is stored beside.
6. Inputs have just been written by another core: no cache of the worker's own core holds them.
7. Between calls, while the referee draws and compares, every process of the worker is stopped.
8. CPU time is billed against wall time (``graders.holding``): one core is all that a call can use.
9. Whether others took the core is measured, not guessed: ``ShapeSamples.contention``.

What it does not give: 0.1 to 1 ms of every figure is the trip (see ``overhead_ms``), so kernels of
microseconds are timed by chains (``graders.pacing``). On a GPU points 6 and 8 do not hold: inputs
are copied to the device in each call, and a worker has many cores.

A sample is one call. Where a task's shape is a sequence of calls (decoding steps), the median is
over all of them, and work that is put off to a few long calls shows in ``deferred``.
"""

import math
import secrets
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from graders import launch, machine
from graders.buffers import room_for
from graders.candidate import Arrays, Candidate, Draw
from graders.closeness import compare_all
from graders.errors import GraderVoid, SubmissionFailed
from graders.launch import World
from graders.referee import Answer, WorkerSession
from tasks.spec import Shape
from transcripts.records import ShapeTiming
from transcripts.words import GradeResult

METHOD = "referee_clock"
HOST_LEASE = "host-cpu"
PRECISION = 0.01  # half width of the median's 95% interval, relative
LEAST_CALLS, PRECISE_FROM, MOST_CALLS = 4, 20, 400
BUDGET_S = {"quick": 0.5, "full": 0.75}  # a shape, draws and comparisons included
TRIPS = 9
VERIFIED_FIRST = 8  # calls
CONTENDED, SPOILT = 0.25, 0.5
"""Share of the median call that others took, above which an isolated timing is tried again, and
above which there is no figure: more than half of it is then not the kernel's time. In between the
grade tells the share. Half of the calls may lose any time without moving the median."""
SEEN = 0.025
"""Share of the core that others must have had by `/proc/stat` too, so that no worker makes its own
contention."""
LEAST_SEQUENCES = 3
_NOOP_MEMORY = 8 << 30
_NOOP_S = 60.0


class Samples(Protocol):
    """What any way of timing gives of one shape."""

    shape: str

    @property
    def contention(self) -> float | None:
        """Share of the median call that others took; None where it is not measured."""
        ...

    @property
    def deferred(self) -> float:
        """Mean over median of the calls: 1 when all cost alike."""
        ...

    def summary(self) -> ShapeTiming:
        """The record of it."""
        ...


@dataclass
class ShapeSamples:
    """All timed calls of one shape, in the order in which they were made."""

    shape: str
    milliseconds: list[float] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)  # indices of the first calls of sequences
    lost: list[float] = field(default_factory=list)  # share of each call that others took
    others_s: float = 0.0  # that others spent on the worker's core while it was let run
    verified: int = 0  # calls
    overhead_ms: float = 0.0

    def add(self, answers: Sequence[Answer]) -> None:
        """The timed calls of one draw."""
        self.begins.append(len(self.milliseconds))
        self.milliseconds += [answer.elapsed_ns / 1e6 for answer in answers]
        self.lost += [answer.lost_s / (answer.elapsed_ns / 1e9) for answer in answers]
        self.others_s += sum(answer.others_s for answer in answers)

    @property
    def contention(self) -> float:
        """Share of the median call in which the worker could have run but others had its core.

        It is run delay, which the kernel counts (Documentation/scheduler/sched-stats.rst).
        """
        others = self.others_s / (math.fsum(self.milliseconds) / 1e3)
        return statistics.median(self.lost) if others > SEEN else 0.0

    def summary(self) -> ShapeTiming:
        """The record of it."""
        low, high = median_interval(self.milliseconds)
        return ShapeTiming(
            shape=self.shape,
            method=METHOD,
            certified=True,
            calls=len(self.milliseconds),
            median_ms=statistics.median(self.milliseconds),
            ci_low_ms=low,
            ci_high_ms=high,
            min_ms=min(self.milliseconds),
            overhead_ms=self.overhead_ms,
        )

    @property
    def deferred(self) -> float:
        """Mean over median of a sequence's calls, its first not counted: 1 when all cost alike.

        Each place in the sequence counts with its fastest call, so that only what is slow in every
        sequence shows, not what the machine happened to do; below three sequences nothing shows.
        """
        ends = [*self.begins[1:], len(self.milliseconds)]
        sequences = [self.milliseconds[a:b] for a, b in zip(self.begins, ends, strict=True)]
        fastest: list[float] = [min(calls) for calls in zip(*sequences, strict=False)][1:]
        if not fastest or len(sequences) < LEAST_SEQUENCES:
            return 1.0
        return statistics.fmean(fastest) / statistics.median(fastest)


def turn_name(device: str) -> str:
    """The lease under which a device is measured: one for all CPU work of this host."""
    return HOST_LEASE if device == "cpu" else device


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """95% interval of the median from order statistics; the whole range below six samples.

    With n samples the interval between the ranks l and n+1-l covers the median with probability
    1 - 2 P(Binomial(n, 1/2) < l), whatever the distribution.
    """
    ordered, n = sorted(samples), len(samples)
    rank, tail = 0, 0.0
    while True:
        tail += math.comb(n, rank) / 2**n
        if tail > 0.025:
            break
        rank += 1
    low = max(rank - 1, 0)
    return ordered[low], ordered[n - 1 - low]


def time_shapes(candidate: Candidate, shapes: Sequence[Shape], tier: str) -> list[ShapeSamples]:
    """Time the shapes in a random order, in one fresh worker that has seen no other case.

    Raises SubmissionFailed (a wrong timed output: ``wrong``), GraderVoid.
    """
    order = secrets.SystemRandom().sample(shapes, len(shapes))
    found: dict[str, ShapeSamples] = {}
    noop = Path(__file__).parent / "trusted_noop.py"
    place = candidate.place
    with ExitStack() as stack:
        stack.enter_context(machine.apart_from_worker())
        session = stack.enter_context(candidate.session(machine.worker_core()))
        empty = stack.enter_context(launch.world(noop, None, place.isolation, place.packages))
        trusted = stack.enter_context(_noop_worker(candidate, empty))
        for shape in order:
            found[shape.name] = _time_shape(session, trusted, candidate, shape, BUDGET_S[tier])
        _keeps_to_its_core(session)
    return [found[shape.name] for shape in shapes]


def _noop_worker(candidate: Candidate, empty: World) -> WorkerSession:
    session = WorkerSession(
        empty, _NOOP_MEMORY, core=machine.worker_core(), device=candidate.device
    )
    session.build(None, candidate.task.interface.outputs, candidate.device, _NOOP_S)
    return session


def _time_shape(
    session: WorkerSession,
    trusted: WorkerSession,
    candidate: Candidate,
    shape: Shape,
    budget_s: float,
) -> ShapeSamples:
    started = time.monotonic()
    samples = ShapeSamples(shape.name)
    last = False
    draw = candidate.draw(shape, secrets.token_hex(16))
    expected = candidate.expected(draw)  # the first draw is a warm-up; its shapes hold for all
    room = max(room_for(outputs) for outputs in expected)
    verify(candidate, draw, outputs_of(timed_calls(session, candidate, draw, room)), expected)
    for _ in range(secrets.randbelow(3) if len(draw.calls) == 1 else 0):
        if time.monotonic() - started < budget_s / 2:
            draw = candidate.draw(shape, secrets.token_hex(16))
            timed_calls(session, candidate, draw, room)
    while not last:
        candidate.check_time()
        draw = candidate.draw(shape, secrets.token_hex(16))
        answers = timed_calls(session, candidate, draw, room)
        samples.add(answers)
        last = _enough(samples, started + budget_s)
        if last or _is_verified(samples):  # decided when the answers are in
            verify(candidate, draw, outputs_of(answers), candidate.expected(draw))
            samples.verified += len(answers)
    samples.overhead_ms = _trip(trusted, draw.calls[-1], expected[-1], room)
    return samples


def timed_calls(
    session: WorkerSession, candidate: Candidate, draw: Draw, room: int
) -> list[Answer]:
    """The answers of one draw; the worker is stopped afterwards."""
    limit = candidate.task.limits.call_s
    session.setup(draw.params, limit)
    answers = [session.timed_call(inputs, room, limit) for inputs in draw.calls]
    session.hold()
    return answers


def outputs_of(answers: Sequence[Answer]) -> list[Arrays]:
    """What the calls gave."""
    return [answer.outputs for answer in answers]


def verify(
    candidate: Candidate, draw: Draw, outputs: Sequence[Arrays], expected: Sequence[Arrays]
) -> None:
    """Compare the outputs of timed calls. Raises SubmissionFailed."""
    for n, (out, wanted, inputs) in enumerate(zip(outputs, expected, draw.calls, strict=True)):
        for close in compare_all(candidate.task, None, out, wanted, inputs):
            if not close.passed:
                told = f"timed call {n} of {len(draw.calls)}: {close.leaf}: {close.detail}"
                raise SubmissionFailed(close.word, told)


def _is_verified(samples: ShapeSamples) -> bool:
    """All of the first calls and the first two draws; then half of the draws."""
    first = samples.verified < VERIFIED_FIRST or len(samples.begins) <= 2
    return first or secrets.randbelow(2) == 1


def _enough(samples: ShapeSamples, stop_at: float) -> bool:
    n = len(samples.milliseconds)
    if n < LEAST_CALLS or (n < PRECISE_FROM and time.monotonic() < stop_at):
        return False
    if n >= MOST_CALLS or time.monotonic() >= stop_at:
        return True
    low, high = median_interval(samples.milliseconds)
    return (high - low) / 2 <= PRECISION * statistics.median(samples.milliseconds)


def _trip(trusted: WorkerSession, inputs: Arrays, outputs: Arrays, room: int) -> float:
    """Median milliseconds of the same trip with a worker that returns ready-made outputs."""
    shapes = {name: (array.shape, str(array.dtype)) for name, array in outputs.items()}
    try:
        trusted.setup(shapes, _NOOP_S)
        trips = [trusted.timed_call(inputs, room, _NOOP_S).elapsed_ns for _ in range(TRIPS)]
    except SubmissionFailed as error:
        raise GraderVoid(f"our own worker failed: {error}") from error
    return statistics.median(trips) / 1e6


def _keeps_to_its_core(session: WorkerSession) -> None:
    """A submission that gives itself more cores is timed on a machine that others do not have."""
    cores = session.cores()
    if not cores <= session.given_cores:
        told = f"it let itself run on cores {sorted(cores)}; given: {sorted(session.given_cores)}"
        raise SubmissionFailed(GradeResult.TAMPERED, told)
