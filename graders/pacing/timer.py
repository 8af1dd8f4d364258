"""Time the shapes of one submission by paced chains, beside a worker of our own in the same run."""

import math
import os
import secrets
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graders import launch, processes
from graders.candidate import Candidate
from graders.errors import GraderVoid, SubmissionFailed
from graders.pacing.chain import Chain, Output, Pacer, handed_over, size_of, slots_for
from graders.pacing.memory import Memory, memory_of
from graders.pacing.pools import Pools, draws, dtype_of, make_pools
from graders.pacing.samples import PacedSamples, Trusted, least_ms
from graders.pacing.verify import verify
from graders.referee import WorkerSession
from graders.timing import median_interval
from tasks.spec import Shape
from transcripts.words import GradeResult

CHAIN_S = {"quick": 0.03, "full": 0.05}
CHAINS = {"quick": 4, "full": 6}
LEAST_CALLS, MOST_CALLS = 12, 400
PROBING_CALLS = 6
VERIFIED = 140
"""Calls of a shape that are kept and compared, where it has so many: a worker that leaves out one
call in twenty then passes in fewer than one grade in a thousand (0.95 ** 140)."""
SLOT_BYTES = 2 << 30
EVENTS_WARM_UP, EVENTS_A_TIME, MOST_EVENTS = 10, 40, 240  # warm-up as the public boards
PRECISION = 0.01  # half width of the 95% interval, relative
SPIN_CYCLES = 2_000_000  # about a millisecond: all launches of a call are queued behind it
TRUSTED_MEMORY = 8 << 30
TRUSTED_S = 60.0
TRUSTED_CALLS, TRUSTED_CHAINS = 100, 2


@dataclass(frozen=True)
class Events:
    """A worker's own events over windows of these pools."""

    session: WorkerSession
    pools: Pools
    flush: int  # bytes written before each call, so that caches are cold

    def idle(self) -> list[float]:
        """Milliseconds of calls on an idle stream. Raises SubmissionFailed."""
        return self._ask(0)

    def queued(self) -> list[float]:
        """The same behind a kernel of `SPIN_CYCLES`: without launch latency."""
        return self._ask(SPIN_CYCLES)

    def _ask(self, spin: int) -> list[float]:
        frame = {
            "op": "events",
            "inputs": [pool.leaf for pool in self.pools.pools],
            "begins": [self.pools.choose() for _ in range(EVENTS_WARM_UP + EVENTS_A_TIME)],
            "warm_up": EVENTS_WARM_UP,
            "flush": self.flush,
            "spin": spin,
        }
        answer = self.session.ask(frame, TRUSTED_S, tuple(p.block.fd for p in self.pools.pools))
        return believable(answer.get("milliseconds"), EVENTS_A_TIME)


class Timer:
    """Times shapes of one candidate in one worker."""

    def __init__(self, candidate: Candidate, session: WorkerSession, tier: str) -> None:
        self._candidate, self._session, self._tier = candidate, session, tier
        self._memory: Memory = memory_of(candidate.device)

    def time(self, shape: Shape) -> PacedSamples:
        """One shape. Raises SubmissionFailed, GraderVoid."""
        started = time.monotonic()
        found = PacedSamples(shape.name)
        outputs = outputs_of(self._candidate, shape, self._memory)
        tried = self._chain(shape, outputs, PROBING_CALLS, 1.0, found)
        typical_s = statistics.median(tried.elapsed_ns) / 1e9
        calls = max(min(round(CHAIN_S[self._tier] / typical_s), MOST_CALLS), LEAST_CALLS)
        share = min(VERIFIED / (calls * CHAINS[self._tier]), 1.0)
        for _ in range(CHAINS[self._tier]):
            self._candidate.check_time()
            found.chains.append(self._chain(shape, outputs, calls, share, found))
        if self._memory.is_device:
            self._events(shape, found)
        found.seconds = time.monotonic() - started
        return found

    def _chain(
        self,
        shape: Shape,
        outputs: Sequence[Output],
        calls: int,
        share: float,
        found: PacedSamples,
    ) -> Chain:
        """One chain on pools of its own; a ``share`` of its calls is verified."""
        candidate, memory = self._candidate, self._memory
        limit = candidate.task.limits.call_s
        with (
            _pools(candidate, shape, memory, calls) as pools,
            _slots(memory, outputs, calls) as slots,
        ):
            self._session.setup(pools.params, limit)
            pacing = Pacer(self._session, memory, pools, outputs, slots, limit)
            chain = pacing.run(calls, lambda call: call == 0 or _by_chance(share))
            for kept in chain.kept:
                handed = handed_over(memory, outputs, slots, kept)
                verify(candidate, memory, pools, kept, handed)
            found.verified += len(chain.kept)
        return chain

    def _events(self, shape: Shape, found: PacedSamples) -> None:
        """Claims, until the median's interval is narrow."""
        with _pools(self._candidate, shape, self._memory, EVENTS_A_TIME) as pools:
            self._session.setup(pools.params, TRUSTED_S)
            events = Events(self._session, pools, self._memory.cold_bytes)
            while len(found.events_ms) < MOST_EVENTS and not _narrow(found.events_ms):
                found.events_ms += events.idle()
            found.queued_ms = events.queued()


class OwnWorker:
    """A worker with ``trusted_spin.py``: writes outputs of the same size, as slowly as is asked."""

    def __init__(
        self,
        session: WorkerSession,
        memory: Memory,
        pools: Pools,
        outputs: Sequence[Output],
        slots: Any,
    ) -> None:
        self._session, self._memory, self._pools = session, memory, pools
        self._outputs, self._slots = outputs, slots

    def figures(self, certified_ms: float) -> list[Trusted]:
        """Without more work than writing outputs, then about as long as ``certified_ms``."""
        bare = self._figure(0, 0)
        left_ns = round(certified_ms * 1e6 - least_ms(bare.chains) * 1e6)
        if left_ns <= 0:
            return [bare]
        if not self._memory.is_device:
            return [self._figure(left_ns, 0)]
        spin = max(round(left_ns * self._cycles_a_ns()), 1)
        return [self._figure(spin, 0), self._figure(0, left_ns)]

    def _figure(self, spin: int, wait: int) -> Trusted:
        self._set(spin, wait)
        chains = tuple(self._chain() for _ in range(TRUSTED_CHAINS))
        if not self._memory.is_device:
            return Trusted(chains, (max(spin, 1) / 1e6,))
        events = Events(self._session, self._pools, self._memory.cold_bytes)
        return Trusted(chains, tuple(events.idle()))

    def _chain(self) -> Chain:
        args = (self._memory, self._pools, self._outputs, self._slots, TRUSTED_S)
        return Pacer(self._session, *args).run(TRUSTED_CALLS, lambda _call: False)

    def _cycles_a_ns(self) -> float:
        """Clock cycles of the spin kernel in a nanosecond."""
        self._set(SPIN_CYCLES, 0)
        events = Events(self._session, self._pools, self._memory.cold_bytes)
        return SPIN_CYCLES / (statistics.median(events.queued()) * 1e6)

    def _set(self, spin: int, wait: int) -> None:
        described = [
            {"name": o.name, "dtype": o.dtype, "shape": list(o.shape)} for o in self._outputs
        ]
        device = "cuda" if self._memory.is_device else "cpu"
        params = {"device": device, "outputs": described, "spin": spin, "wait": wait}
        self._session.setup(params, TRUSTED_S)


def time_paced(candidate: Candidate, shapes: Sequence[Shape], tier: str) -> list[PacedSamples]:
    """Time shapes in a random order in one fresh worker. Raises SubmissionFailed, GraderVoid.

    Our own worker is measured when the candidate's processes are gone and can disturb nothing.
    """
    order = secrets.SystemRandom().sample(shapes, len(shapes))
    with _on_own_core():
        with candidate.session() as session:
            timer = Timer(candidate, session, tier)
            found = {shape.name: timer.time(shape) for shape in order}
        with _own_session(candidate) as trusted:
            for shape in order:
                samples = found[shape.name]
                samples.trusted = own_figures(candidate, trusted, shape, samples.certified_ms)
    return [found[shape.name] for shape in shapes]


def own_figures(
    candidate: Candidate, session: WorkerSession, shape: Shape, certified_ms: float
) -> list[Trusted]:
    """What our own worker takes, as long as the candidate. Raises GraderVoid."""
    memory = memory_of(candidate.device)
    outputs = outputs_of(candidate, shape, memory)
    with (
        _pools(candidate, shape, memory, 1) as pools,
        _slots(memory, outputs, 1) as slots,
    ):
        try:
            return OwnWorker(session, memory, pools, outputs, slots).figures(certified_ms)
        except SubmissionFailed as error:
            raise GraderVoid(f"our own worker failed: {error}") from error


def outputs_of(candidate: Candidate, shape: Shape, memory: Memory) -> list[Output]:
    """What outputs must be, from the reference on one draw."""
    drawn = draws(candidate, shape, memory, 1)[0]
    expected = candidate.expected(drawn)[0]
    return [
        Output(name, dtype_of(array), tuple(array.shape), int(array.nbytes))
        for name, array in expected.items()
    ]


def believable(value: object, count: int) -> list[float]:
    """Claimed milliseconds as finite numbers. Raises SubmissionFailed."""
    numbers = value if isinstance(value, list) else []
    good = [n for n in numbers if type(n) in (int, float) and 0 <= n < 1e7 and math.isfinite(n)]
    if len(numbers) != count or len(good) != count:
        raise SubmissionFailed(GradeResult.TAMPERED, "its events are no list of times")
    return [float(n) for n in good]


@contextmanager
def _pools(candidate: Candidate, shape: Shape, memory: Memory, calls: int) -> Iterator[Pools]:
    pools = make_pools(candidate, shape, memory, calls)
    try:
        yield pools
    finally:
        pools.release()


@contextmanager
def _slots(memory: Memory, outputs: Sequence[Output], calls: int) -> Iterator[Any]:
    slots = slots_for(memory, outputs, calls, max(SLOT_BYTES, size_of(outputs)))
    try:
        yield slots
    finally:
        slots.release()


@contextmanager
def _own_session(candidate: Candidate) -> Iterator[WorkerSession]:
    place, adapter = candidate.place, Path(__file__).parent / "trusted_spin.py"
    with (
        launch.world(adapter, None, place.isolation, place.packages) as empty,
        WorkerSession(empty, TRUSTED_MEMORY, device=candidate.device) as session,
    ):
        names = candidate.task.interface.outputs
        session.build(None, names, candidate.device, TRUSTED_S)
        yield session


@contextmanager
def _on_own_core() -> Iterator[None]:
    """Poll on a core that workers do not have, where there is one."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(processes.OUR_CORES)})
        yield
    finally:
        os.sched_setaffinity(0, before)


def _by_chance(share: float) -> bool:
    return secrets.randbelow(1 << 30) < share * (1 << 30)


def _narrow(samples: Sequence[float]) -> bool:
    if len(samples) < EVENTS_A_TIME:
        return False
    low, high = median_interval(samples)
    return (high - low) / 2 <= PRECISION * statistics.median(samples)
