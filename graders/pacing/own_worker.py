"""A worker of our own, timed as a candidate is: what a paced call takes beside the work in it."""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from graders import launch
from graders.candidate import Candidate
from graders.errors import GraderVoid, SubmissionFailed
from graders.pacing.chain import Chain, Output, Pacer, slots_of
from graders.pacing.events import SPIN_CYCLES, Events
from graders.pacing.memory import Block, Memory, memory_of
from graders.pacing.pools import Pools, pools_of
from graders.pacing.samples import PacedSamples, Trusted, least_ms
from graders.referee import WorkerSession
from tasks.spec import Shape

MEMORY_BYTES = 8 << 30
LIMIT_S = 60.0
CHAINS = 4


@contextmanager
def own_session(candidate: Candidate) -> Iterator[WorkerSession]:
    """A worker with ``trusted_spin.py``. Raises GraderVoid."""
    place, adapter = candidate.place, Path(__file__).parent / "trusted_spin.py"
    with (
        launch.world(adapter, None, place.isolation, place.packages) as empty,
        WorkerSession(empty, MEMORY_BYTES, device=candidate.device) as session,
    ):
        names = candidate.task.interface.outputs
        session.build(None, names, candidate.device, LIMIT_S)
        yield session


def own_figures(
    candidate: Candidate,
    session: WorkerSession,
    shape: Shape,
    outputs: Sequence[Output],
    found: PacedSamples,
) -> list[Trusted]:
    """What our own worker takes, in chains as long as the candidate's. Raises GraderVoid."""
    memory = memory_of(candidate.device)
    calls = len(found.chains[0].elapsed_ns)
    with (
        pools_of(candidate, shape, memory, calls, [{}]) as pools,
        slots_of(memory, outputs, 1) as slots,
    ):
        try:
            own = OwnWorker(session, memory, pools, outputs, slots)
            return own.figures(found.certified_ms, calls)
        except SubmissionFailed as error:
            raise GraderVoid(f"our own worker failed: {error}") from error


class OwnWorker:
    """A worker with ``trusted_spin.py``: writes outputs of the same size, as slowly as is asked."""

    def __init__(
        self,
        session: WorkerSession,
        memory: Memory,
        pools: Pools,
        outputs: Sequence[Output],
        slots: Block,
    ) -> None:
        self._session, self._memory, self._pools = session, memory, pools
        self._outputs, self._slots, self._calls, self._call_s = outputs, slots, 1, 0.0

    def figures(self, certified_ms: float, calls: int) -> list[Trusted]:
        """Without more work than writing outputs, then about as long as ``certified_ms``."""
        self._calls, self._call_s = calls, certified_ms / 1e3
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
        pairs = [(self._chain(), self._events(spin)) for _ in range(CHAINS)]
        chains, events = zip(*pairs, strict=True)
        return Trusted(chains, events)

    def _events(self, spin: int) -> tuple[float, ...]:
        if not self._memory.is_device:
            return (max(spin, 1) / 1e6,)
        return tuple(self._claims().idle())

    def _claims(self) -> Events:
        return Events(self._session, self._pools, self._memory.cold_bytes, self._call_s)

    def _chain(self) -> Chain:
        args = (self._memory, self._pools, self._outputs, self._slots, LIMIT_S)
        return Pacer(self._session, *args).run(self._calls, lambda call: call == 0)

    def _cycles_a_ns(self) -> float:
        """Clock cycles of the spin kernel in a nanosecond."""
        self._set(SPIN_CYCLES, 0)
        return SPIN_CYCLES / (statistics.median(self._claims().queued()) * 1e6)

    def _set(self, spin: int, wait: int) -> None:
        described = [
            {"name": o.name, "dtype": o.dtype, "shape": list(o.shape)} for o in self._outputs
        ]
        device = "cuda" if self._memory.is_device else "cpu"
        params = {"device": device, "outputs": described, "spin": spin, "wait": wait}
        self._session.setup(params, LIMIT_S)
