"""Time the shapes of one submission by paced chains, beside a worker of our own in the same run."""

import secrets
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from graders import machine, processes
from graders.candidate import Candidate
from graders.errors import GraderVoid, SubmissionFailed
from graders.pacing import events
from graders.pacing.chain import (
    Chain,
    Output,
    Pacer,
    handed_over,
    keeping,
    most_slots,
    outputs_of,
    slots_of,
)
from graders.pacing.memory import Block, Memory, memory_of
from graders.pacing.own_worker import own_figures, own_session
from graders.pacing.pools import Pools, States, most_calls, pools_of, states_of
from graders.pacing.samples import PacedSamples
from graders.pacing.verify import compares_on_device, verify
from graders.referee import WorkerSession
from graders.roofline import work
from graders.timing import median_interval
from graders.worker.digests import MOST_LEAVES
from graders.worker.pacer import MOST_INPUTS
from tasks.spec import Shape
from transcripts.words import GradeResult

CHAIN_S = {"quick": 0.03, "full": 0.05}
CHAINS, MOST_CHAINS = {"quick": 4, "full": 6}, 12
AGREE = 0.02
"""The two least chain means must be this near, else more chains are run: one that noise has spared
is likely then to be among them."""
LEAST_CALLS, STEADY_CALLS, MOST_CALLS = 12, 32, 400
STEADY_S = 0.02
"""Calls shorter than this come in chains of ``STEADY_CALLS`` at least: under its power cap a device
runs a burst of heavy calls up to a tenth faster than calls without end."""
PROBING_CALLS = 3
VERIFIED = 140
"""Calls of a shape that are kept and compared, where it has so many: a worker that leaves out one
call in twenty then passes in fewer than one grade in a thousand (0.95 ** 140)."""
LEAST_VERIFIED = 24
"""Calls that are compared however slow the reference is (0.95 ** 24 is 0.3; a grade has several
shapes), and what comparing more of them may take:"""
VERIFYING_S = {"quick": 3.0, "full": 15.0}  # a shape
HOST_BYTES = 256 << 20  # of inputs and outputs that are compared on the host, a shape
MOST_EVENTS = 240
PRECISION = 0.01  # half width of the 95% interval, relative


class Timer:
    """Times shapes of one candidate in one worker."""

    def __init__(self, candidate: Candidate, session: WorkerSession, tier: str) -> None:
        self._candidate, self._session, self._tier = candidate, session, tier
        self._memory: Memory = memory_of(candidate.device)
        self._states: States = ()
        self.outputs: dict[str, list[Output]] = {}  # by shape: what they must be
        self._verifying_s = 0.0  # of this shape

    def time(self, shape: Shape) -> PacedSamples:
        """One shape. Raises SubmissionFailed, GraderVoid."""
        started = time.monotonic()
        found = PacedSamples(shape.name)
        self._verifying_s = 0.0
        with self._room():
            self._set_up(shape)
            outputs = outputs_of(self._candidate, shape, self._states[0])
        self.outputs[shape.name] = outputs
        tried = self._chain(shape, outputs, PROBING_CALLS, 1.0, found)
        typical_s = statistics.median(tried.elapsed_ns) / 1e9
        least = STEADY_CALLS if typical_s < STEADY_S else LEAST_CALLS
        calls = max(min(round(CHAIN_S[self._tier] / typical_s), MOST_CALLS), least)
        calls = min(calls, most_calls(self._candidate, shape, self._memory))
        share = self._share(shape, calls * CHAINS[self._tier], found.verified)
        while not self._enough(found.chains):
            self._candidate.check_time()
            found.chains.append(self._chain(shape, outputs, calls, share, found))
        if self._memory.is_device:
            self._events(shape, found)
        found.seconds = time.monotonic() - started
        return found

    def _set_up(self, shape: Shape) -> None:
        """All states of a shape, beside each other."""
        self._states = states_of(self._candidate, shape, self._memory)
        for number, params in enumerate(self._states):
            self._session.setup(params, self._candidate.task.limits.call_s, number)

    def _enough(self, chains: Sequence[Chain]) -> bool:
        if len(chains) < CHAINS[self._tier]:
            return False
        least, second, *_ = sorted(chain.mean_ns for chain in chains)
        return second - least <= AGREE * least or len(chains) >= MOST_CHAINS

    def _share(self, shape: Shape, calls: int, verified: int) -> float:
        """Of the calls that are kept; fewer where the reference is slow, or on the host."""
        each_s = self._verifying_s / max(verified, 1)
        affordable = round(VERIFYING_S[self._tier] / max(each_s, 1e-6))
        wanted = min(VERIFIED, max(affordable, LEAST_VERIFIED))
        if self._memory.is_device and not compares_on_device(self._candidate):
            wanted = min(
                wanted, max(HOST_BYTES // round(work(self._candidate.task, shape).bytes), 4)
            )
        return min(wanted / calls, 1.0)

    def _chain(
        self,
        shape: Shape,
        outputs: Sequence[Output],
        calls: int,
        share: float,
        found: PacedSamples,
    ) -> Chain:
        """One chain on pools of its own; a ``share`` of its calls is verified."""
        memory = self._memory
        share, room = keeping(calls, share, most_slots(memory, outputs))
        with (
            self._room(),
            pools_of(self._candidate, shape, memory, calls, self._states) as pools,
            slots_of(memory, outputs, room) as slots,
        ):
            chain = self._paced(pools, outputs, slots, calls, share)
            started = time.monotonic()
            for kept in chain.kept:
                handed = handed_over(memory, outputs, slots, kept)
                verify(self._candidate, memory, pools, kept, handed)
            self._verifying_s += time.monotonic() - started
            found.verified += len(chain.kept)
        return chain

    def _paced(
        self, pools: Pools, outputs: Sequence[Output], slots: Block, calls: int, share: float
    ) -> Chain:
        limit = self._candidate.task.limits.call_s
        pacing = Pacer(self._session, self._memory, pools, outputs, slots, limit)
        return pacing.run(calls, lambda call: call == 0 or _by_chance(share))

    @contextmanager
    def _room(self) -> Iterator[None]:
        """Whose fault a full device is. Raises SubmissionFailed (``memory``), GraderVoid."""
        try:
            yield
        except self._memory.full as error:
            self._session.close()
            if self._memory.has_room():
                told = "it left no device memory for the inputs of timed calls"
                raise SubmissionFailed(GradeResult.MEMORY, told) from error
            raise GraderVoid(
                f"the device's memory is too small, or others have it: {error}"
            ) from error

    def _events(self, shape: Shape, found: PacedSamples) -> None:
        """Claims, until the median's interval is narrow."""
        many = self._memory, events.A_TIME, self._states
        with self._room(), pools_of(self._candidate, shape, *many) as pools:
            pools.deliver(self._memory)
            cold, call_s = self._memory.cold_bytes, found.certified_ms / 1e3
            claims = events.Events(self._session, pools, cold, call_s)
            while len(found.events_ms) < MOST_EVENTS and not _narrow(found.events_ms):
                found.events_ms += claims.idle()
            found.queued_ms = claims.queued()


def can_be_paced(candidate: Candidate) -> bool:
    """On a GPU, where a shape is one call: sequences and written inputs keep the single calls.

    So do calls of more arrays than a page can name inputs, or a digest outputs.
    """
    interface = candidate.task.interface
    if candidate.device == "cpu" or interface.written or interface.mutable_inputs:
        return False
    calls = candidate.draw(candidate.task.smoke[0], 0).calls
    few = len(calls[0]) <= MOST_INPUTS and len(interface.outputs) <= MOST_LEAVES
    return len(calls) == 1 and few


def time_paced(candidate: Candidate, shapes: Sequence[Shape], tier: str) -> list[PacedSamples]:
    """Time shapes in a random order in one fresh worker. Raises SubmissionFailed, GraderVoid.

    Our own worker is measured when the candidate's processes are gone and can disturb nothing.
    """
    order = secrets.SystemRandom().sample(shapes, len(shapes))
    try:
        with machine.on_cores({min(processes.OUR_CORES)}):  # workers on a GPU do not have it
            with candidate.session() as session:
                timer = Timer(candidate, session, tier)
                found = {shape.name: timer.time(shape) for shape in order}
            with own_session(candidate) as own:
                for shape in order:
                    samples = found[shape.name]
                    outputs = timer.outputs[shape.name]
                    samples.trusted = own_figures(candidate, own, shape, outputs, samples)
    finally:
        memory_of(candidate.device).give_back()
    return [found[shape.name] for shape in shapes]


def _by_chance(share: float) -> bool:
    return secrets.randbelow(1 << 30) < share * (1 << 30)


def _narrow(samples: Sequence[float]) -> bool:
    if len(samples) < events.A_TIME:
        return False
    low, high = median_interval(samples)
    return (high - low) / 2 <= PRECISION * statistics.median(samples)
