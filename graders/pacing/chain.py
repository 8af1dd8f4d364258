"""A chain of paced calls: the referee lets one call go, clocks its answer, lets the next one go.

*Go* names where the call's inputs begin in their pools, and a key. The answer is a digest of all
outputs with that key, which the worker's digest kernel writes into a page that this side polls: no
system call, no copy and no switch of the GPU's context lies in between. The clock of a call runs
from the writing of *go* until its digest is seen and the worker is ready for the next. Afterwards,
for calls chosen only then, the worker must hand over the outputs (``KEEP``): they must be those of
the digest, and be right. Waits for that are clocked too: the pools are there, so time that is no
call's could be spent on calls to come (``graders.pacing.samples`` charges what is beyond our own).
"""

import math
import mmap
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graders.buffers import Buffer
from graders.candidate import Candidate, Draw
from graders.errors import SubmissionFailed
from graders.pacing.memory import Block, Key, Memory
from graders.pacing.pools import MOST_BYTES, Pools, draws, dtype_of
from graders.referee import WorkerSession
from graders.tensors import is_tensor
from graders.worker import pacer
from tasks.rawfloats import BITS
from tasks.spec import Shape
from tasks.tensors import TORCH_NAMES
from transcripts.words import GradeResult

START_S = 60.0
FEWEST_SLOTS = 8
SPREADS = 4.0
SPINS_A_LOOK = 1 << 13
MEMORY_LOOK_S = 1.0


@dataclass(frozen=True)
class Output:
    """What an output must be. ``dtype`` as torch and NumPy name it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int  # bytes


@dataclass(frozen=True)
class Kept:
    """One call whose outputs were handed over."""

    call: int
    begins: tuple[int, ...]
    key: Key
    digest: Key
    place: int  # first byte in the slots
    state: int


@dataclass
class Chain:
    """What one chain gave."""

    elapsed_ns: list[int] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    here_ns: int = 0  # from the worker's release, its pools full, to its readiness
    keeps_ns: list[int] = field(default_factory=list)  # of handing over, one for each of `kept`
    mapping_ns: int = 0  # from the sending of the descriptors to the first readiness

    @property
    def mean_ns(self) -> float:
        """Of all calls: whatever a worker prepares in one of them is in it."""
        return sum(self.elapsed_ns) / len(self.elapsed_ns)


Chooser = Callable[[int], bool]
"""Whether to keep a call, asked when its digest is in."""


class Page:
    """The page of a chain, from the referee's side."""

    def __init__(self) -> None:
        self._buffer = Buffer(pacer.PAGE_BYTES, "page")
        self._map = mmap.mmap(self._buffer.fd, pacer.PAGE_BYTES)
        self.words = memoryview(self._map).cast("Q")
        self.number = 0

    @property
    def fd(self) -> int:
        """To be sent."""
        return self._buffer.fd

    def write(self, command: int, **words: Sequence[int]) -> None:
        """Everything but the number that makes it valid."""
        self.words[pacer.GO + pacer.COMMAND] = command
        for name, values in words.items():
            at = pacer.GO + getattr(pacer, name.upper())
            for n, value in enumerate(values):
                self.words[at + n] = value

    def close(self) -> None:
        """Unmap and close."""
        self.words.release()
        self._map.close()
        self._buffer.close()


class Pacer:
    """Runs one chain with a worker. ``slots`` hold what is kept."""

    def __init__(
        self,
        session: WorkerSession,
        memory: Memory,
        pools: Pools,
        outputs: Sequence[Output],
        slots: Block,
        limit_s: float,
    ) -> None:
        self._session, self._memory, self._pools = session, memory, pools
        self._outputs, self._slots, self._limit_s = outputs, slots, limit_s
        self._page = Page()
        self._place = 0
        self._memory_at = time.monotonic() + MEMORY_LOOK_S

    def run(self, calls: int, keep: Chooser) -> Chain:
        """All calls, and the keeping. Raises SubmissionFailed."""
        chain = Chain()
        frame = {
            "op": "pace",
            "inputs": [pool.leaf for pool in self._pools.pools],
            "outputs": [
                {"name": o.name, "dtype": o.dtype, "shape": list(o.shape)} for o in self._outputs
            ],
            "slots": self._slots.size,
            **self._memory.options(),
        }
        pools = [pool.block.fd for pool in self._pools.pools]
        begun = time.perf_counter_ns()
        try:
            self._session.talk.begin(frame, (self._page.fd, *pools, self._slots.fd))
            self._await(frame, pacer.READY, 1, START_S)
            chain.mapping_ns = time.perf_counter_ns() - begun
            chain.here_ns = self._deliver(frame)
            for call in range(calls):
                self._call(frame, chain, call, keep)
            self._go(pacer.END)
            self._session.talk.finish(frame, START_S)
        except SubmissionFailed:
            self._session.give_up()  # it may still be polling the page
            raise
        finally:
            self._page.close()
        return chain

    def _deliver(self, frame: dict[str, Any]) -> int:
        """Fill the pools while every process of the worker is stopped; ns until it is ready."""
        self._session.hold()
        self._pools.deliver(self._memory)
        released = time.perf_counter_ns()
        self._session.let_go()
        number = self._go(pacer.HERE)
        self._await(frame, pacer.READY, number + 1, START_S)
        return time.perf_counter_ns() - released

    def _call(self, frame: dict[str, Any], chain: Chain, call: int, keep: Chooser) -> None:
        begins, key = self._pools.choose(), (secrets.randbits(64), secrets.randbits(64))
        page, number = self._page, self._page.number + 1
        state = self._pools.choose_state()
        page.write(pacer.CALL, key=key, begin=begins, state=[state])
        started = time.perf_counter_ns()
        page.words[pacer.GO] = page.number = number
        self._await(frame, pacer.DONE, number, self._limit_s)
        self._await(frame, pacer.READY, number + 1, self._limit_s)
        chain.elapsed_ns.append(time.perf_counter_ns() - started)
        digest = (page.words[pacer.DONE + 1], page.words[pacer.DONE + 2])
        if self._place + size_of(self._outputs) <= self._slots.size and keep(call):
            chain.kept.append(Kept(call, tuple(begins), key, digest, self._place, state))
            chain.keeps_ns.append(self._keep(frame))

    def _keep(self, frame: dict[str, Any]) -> int:
        """Have the outputs of the last call handed over; ns until it is ready for the next."""
        self._page.write(pacer.KEEP, place=[self._place])
        asked = time.perf_counter_ns()
        number = self._go(pacer.KEEP)
        self._await(frame, pacer.DONE, number, self._limit_s)
        self._await(frame, pacer.READY, number + 1, self._limit_s)
        self._place += size_of(self._outputs)
        return time.perf_counter_ns() - asked

    def _go(self, command: int) -> int:
        page = self._page
        page.words[pacer.GO + pacer.COMMAND] = command
        page.number += 1
        page.words[pacer.GO] = page.number
        return page.number

    def _await(self, frame: dict[str, Any], line: int, number: int, seconds: float) -> None:
        """Poll one word; now and then look for a worker that has ended instead."""
        words = self._page.words
        spins, deadline = 0, 0.0
        while words[line] != number:
            spins += 1
            if spins % SPINS_A_LOOK == 0:
                deadline = deadline or time.monotonic() + seconds
                self._look(frame, deadline)

    def _look(self, frame: dict[str, Any], deadline: float) -> None:
        if self._session.talk.has_answered():
            self._session.talk.finish(frame, 1)
            raise SubmissionFailed(GradeResult.TAMPERED, "it ended the chain before it was told to")
        now = time.monotonic()
        if now > self._memory_at:  # seldom: it reads much of /proc, while a clock is running
            self._memory_at = now + MEMORY_LOOK_S
            self._session.talk.check_memory()
        if now > deadline:
            raise SubmissionFailed(GradeResult.TIMEOUT, "no answer to a paced call in time")


def keeping(calls: int, share: float, most: int) -> tuple[float, int]:
    """The share of a chain's calls to keep, and room for how many; ``most`` is all there can be.

    The room hardly ever fills up (``SPREADS`` standard deviations): a worker that sees it full
    knows that no later call is looked at. So where room is short the share is less. One more is
    for the first call, which is always kept.
    """
    if most >= calls:
        return share, min(calls, _room(calls * share))
    spread = math.sqrt(SPREADS**2 / 4 + most - 2) - SPREADS / 2  # root of what fills `most` so
    share = min(share, spread**2 / calls)
    return share, min(most, _room(calls * share))


def _room(mean: float) -> int:
    return math.ceil(mean + SPREADS * math.sqrt(mean)) + 1


def size_of(outputs: Sequence[Output]) -> int:
    """Bytes of one call's outputs in the slots."""
    return sum(pacer.aligned(output.size) for output in outputs)


def handed_over(
    memory: Memory, outputs: Sequence[Output], slots: Block, kept: Kept
) -> dict[str, Any]:
    """The outputs of a kept call. Raises SubmissionFailed when they are not the digest's.

    They are copied first: the worker can still write where they lie.
    """
    flat = memory.private(size_of(outputs), "uint8")
    flat[:] = slots.array("uint8")[kept.place : kept.place + size_of(outputs)]
    found, place = {}, 0
    for output in outputs:
        part = flat[place : place + output.size]
        found[output.name] = memory.viewed(part, output.dtype).reshape(output.shape)
        place += pacer.aligned(output.size)
    if memory.digest(list(found.values()), kept.key) != kept.digest:
        raise SubmissionFailed(
            GradeResult.TAMPERED,
            f"paced call {kept.call}: the outputs handed over are not those that it committed to",
        )
    return found


def most_slots(memory: Memory, outputs: Sequence[Output]) -> int:
    """How many calls' outputs may be held at once."""
    return max(min(MOST_BYTES, memory.most_bytes) // max(size_of(outputs), 1), FEWEST_SLOTS)


@contextmanager
def slots_of(memory: Memory, outputs: Sequence[Output], count: int) -> Iterator[Block]:
    """Room for the outputs of so many calls, given back at the end."""
    slots = memory.allocate(count * size_of(outputs))
    try:
        yield slots
    finally:
        slots.release()


def outputs_of(candidate: Candidate, shape: Shape, params: Mapping[str, Any]) -> list[Output]:
    """What outputs must be, from the reference on one draw after a setup with ``params``."""
    calls = draws(candidate, shape, 1)[0].calls
    expected = candidate.expected(Draw(params, calls))[0]
    raw = candidate.task.interface.raw_outputs
    return [_output(name, array, raw.get(name)) for name, array in expected.items()]


def _output(name: str, array: Any, raw: str | None) -> Output:
    """Of the reference's ``array``, which may be floats that are to be rounded to ``raw``."""
    if raw is None:
        return Output(name, dtype_of(array), tuple(array.shape), int(array.nbytes))
    bits = np.dtype(BITS[raw])
    dtype = TORCH_NAMES[raw] if is_tensor(array) else bits.name
    return Output(name, dtype, tuple(array.shape), math.prod(array.shape) * bits.itemsize)
