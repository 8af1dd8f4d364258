"""Inputs of paced calls: pools of which each call gets one window that nobody can foresee.

An input of independent elements (every float input, unless the task says that it is *dealt*) lies
in one long pool of draws, and a call's input begins anywhere in it, on ``ALIGN`` bytes: there are
far too many windows to work on them ahead, and the pool is as long as all windows of a chain
together, so that working on all of it costs what the calls cost. Other inputs (integers, whatever
has a structure) are dealt whole: a chain has as many sets as calls where they can be drawn in
time, and none comes again before all have come, so that nothing is gained by keeping what follows
from one.

A pool is new for each chain, and empty until the worker that has mapped it is stopped.
"""

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graders import tensors
from graders.candidate import Candidate, Draw, number
from graders.pacing.memory import Block, Memory
from tasks.spec import Shape

ALIGN = 256
MOST_BYTES = 16 << 30  # of all pools of a chain together
DRAWING_S = 0.4  # for draws on the host, beyond the first
MOST_STATES = 12
FEWEST = 3  # calls of a chain, however large the inputs are


@dataclass(frozen=True)
class Pool:
    """One input's pool. ``places`` are where a call's input may begin, in elements.

    The worker can write in ``block``; what results are held against lies in ``own``.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    block: Block
    own: Any  # a flat array with the same elements, which nobody else has
    places: range

    @property
    def leaf(self) -> dict[str, Any]:
        """As it is described to the worker."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "size": self.block.size,
        }

    def window(self, begin: int) -> Any:
        """One input, from the referee's own memory."""
        return self.own[begin : begin + math.prod(self.shape)].reshape(self.shape)


States = Sequence[Mapping[str, Any]]
"""Params of setups beside each other; they differ in their weights."""


@dataclass(frozen=True)
class Pools:
    """All inputs of a shape; ``dealt`` names those dealt whole. Each call has one of ``states``."""

    states: States
    pools: tuple[Pool, ...]
    dealt: frozenset[str]
    _deck: list[int] = field(default_factory=list)  # numbers of the sets that are still to come

    def choose_state(self) -> int:
        """The state of one call."""
        return secrets.randbelow(len(self.states))

    def choose(self) -> list[int]:
        """Where the inputs of one call begin; whole sets are dealt together."""
        one = self._next_set() if self.dealt else 0
        return [
            pool.places[one]
            if pool.name in self.dealt
            else pool.places[secrets.randbelow(len(pool.places))]
            for pool in self.pools
        ]

    def _next_set(self) -> int:
        """The sets in an order that nobody knows, then in another."""
        if not self._deck:
            sets = next(len(pool.places) for pool in self.pools if pool.name in self.dealt)
            self._deck.extend(secrets.SystemRandom().sample(range(sets), sets))
        return self._deck.pop()

    def inputs(self, begins: Sequence[int]) -> dict[str, Any]:
        """The inputs of one call, from the referee's own memory."""
        pairs = zip(self.pools, begins, strict=True)
        return {pool.name: pool.window(begin) for pool, begin in pairs}

    def deliver(self, memory: Memory) -> None:
        """Let the worker's blocks hold the inputs; done when it returns."""
        for pool in self.pools:
            pool.block.array(pool.dtype)[:] = pool.own
        memory.settle()

    def release(self) -> None:
        """Give all memory back."""
        for pool in self.pools:
            pool.block.release()


def draws(candidate: Candidate, shape: Shape, count: int) -> list[Draw]:
    """Nominal draws from secret seeds, without weights; on the device where the reference can."""
    made = _maker(candidate, shape)
    found: list[Draw] = []
    started = time.monotonic()
    on_device = tensors.works_on(candidate.reference, candidate.device)
    while len(found) < count and (on_device or not found or time.monotonic() - started < DRAWING_S):
        found.append(made(number(secrets.token_hex(16))))
    return found


def _maker(candidate: Candidate, shape: Shape) -> Callable[[int], Draw]:
    reference: Any = candidate.reference
    sized = {**shape.dims, "dtype": shape.dtype}
    on_device = tensors.works_on(reference, candidate.device)
    make = getattr(reference, "make_calls", reference.make_inputs)

    def draw(seed: int) -> Draw:
        made = make(sized, seed, "cuda") if on_device else make(sized, seed)
        return Draw(made["params"], made["calls"])

    return draw


def most_calls(candidate: Candidate, shape: Shape, memory: Memory) -> int:
    """Of one chain, so that its pools are as long as all its inputs together."""
    first = draws(candidate, shape, 1)[0].calls[0]
    size = sum(map(_bytes, first.values()))
    return max(min(MOST_BYTES, memory.most_bytes) // max(size, 1), FEWEST)


def states_of(candidate: Candidate, shape: Shape, memory: Memory) -> States:
    """Params of as many setups as it takes for their weights to be in no cache."""
    first = candidate.draw(shape, secrets.token_hex(16)).params
    weights = first.get("weights")
    if not weights:
        return [first]
    size = sum(_bytes(value) for value in weights.values())
    count = min(max(-(-memory.cold_bytes // max(size, 1)), 1), MOST_STATES)
    more = (candidate.draw(shape, secrets.token_hex(16)).params for _ in range(count - 1))
    return [first, *more]


def make_pools(
    candidate: Candidate, shape: Shape, memory: Memory, calls: int, states: States
) -> Pools:
    """Fresh pools for a chain of so many calls."""
    first = draws(candidate, shape, 1)[0]
    sizes = {name: _bytes(array) for name, array in first.calls[0].items()}
    total = max(sum(sizes.values()), 1)
    budget = calls * total
    wanted = {name: max(memory.cold_bytes, budget * n // total) for name, n in sizes.items()}
    count = max((-(-wanted[name] // max(size, 1)) for name, size in sizes.items()), default=1)
    drawn = [first, *draws(candidate, shape, min(count, _most_draws(calls, sizes, memory)) - 1)]
    dealt = frozenset(n for n, a in first.calls[0].items() if is_dealt(candidate, n, a))
    pools: list[Pool] = []
    try:
        for name in sizes:
            pools.append(
                _dealt(name, drawn[:calls], memory)
                if name in dealt
                else _pooled(name, drawn, memory, wanted[name])
            )
        memory.settle()
    except BaseException:
        for pool in pools:
            pool.block.release()
        raise
    return Pools(states, tuple(pools), dealt)


def _most_draws(calls: int, sizes: Mapping[str, int], memory: Memory) -> int:
    """One a call at least; more for variety, as long as they take no more than pools may."""
    fitting = min(MOST_BYTES, memory.most_bytes) // max(sum(sizes.values()), 1)
    return max(calls, min(4 * calls, fitting))


@contextmanager
def pools_of(
    candidate: Candidate, shape: Shape, memory: Memory, calls: int, states: States
) -> Iterator[Pools]:
    """`make_pools`, given back at the end."""
    pools = make_pools(candidate, shape, memory, calls, states)
    try:
        yield pools
    finally:
        pools.release()


def is_dealt(candidate: Candidate, name: str, array: Any) -> bool:
    """Whether an input keeps its draw: integers and empty ones do, floats by the task's word."""
    is_plain = "float" in dtype_of(array) and math.prod(array.shape) > 0
    return name in candidate.task.interface.dealt_inputs or not is_plain


def dtype_of(array: Any) -> str:
    """``float32`` for NumPy's and torch's."""
    return str(array.dtype).removeprefix("torch.")


def _bytes(array: Any) -> int:
    return int(array.nbytes)


def _pooled(name: str, drawn: Sequence[Draw], memory: Memory, wanted: int) -> Pool:
    """Draws one behind the other; what they do not fill is drawn from them again."""
    arrays = [draw.calls[0][name] for draw in drawn]
    one = arrays[0]
    each = math.prod(one.shape)
    item = _bytes(one) // each
    length = max(wanted // item, each + ALIGN // item)
    flat = memory.private(length * item, dtype_of(one))
    filled = 0
    for array in arrays:
        part = min(each, length - filled)
        flat[filled : filled + part] = _flat(array, memory)[:part]
        filled += part
        if filled == length:
            break
    _resample(flat, filled, memory)
    step = max(ALIGN // item, 1)
    return _shared(name, one, flat, range(0, length - each + 1, step), memory)


def _dealt(name: str, drawn: Sequence[Draw], memory: Memory) -> Pool:
    arrays = [draw.calls[0][name] for draw in drawn]
    one = arrays[0]
    each = math.prod(one.shape)
    item = max(_bytes(one) // max(each, 1), 1)
    step = -(-max(each * item, 1) // ALIGN) * ALIGN // item
    flat = memory.private(len(arrays) * step * item, dtype_of(one))
    for n, array in enumerate(arrays):
        flat[n * step : n * step + each] = _flat(array, memory)
    return _shared(name, one, flat, range(0, len(arrays) * step, step), memory)


def _shared(name: str, one: Any, flat: Any, places: range, memory: Memory) -> Pool:
    """A pool with these elements, and a block, still empty, for a copy of them."""
    block = memory.allocate(_bytes(flat))
    return Pool(name, dtype_of(one), tuple(one.shape), block, flat, places)


def _flat(array: Any, memory: Memory) -> Any:
    if memory.is_device and not hasattr(array, "is_cuda"):
        array = memory.torch.from_numpy(array.copy())  # type: ignore[attr-defined]
    return array.reshape(-1)


CHUNK = 1 << 24


def _resample(flat: Any, filled: int, memory: Memory) -> None:
    """Fill the rest with elements of the filled part, chosen anew one by one."""
    bits = memory.viewed(
        flat, f"int{8 * (_bytes(flat) // len(flat))}"
    )  # not all floats are indexed
    for start in range(filled, len(bits), CHUNK):
        part = min(CHUNK, len(bits) - start)
        bits[start : start + part] = bits[_choices(filled, part, memory, bits)]


def _choices(among: int, count: int, memory: Memory, flat: Any) -> Any:
    if memory.is_device:
        torch = memory.torch  # type: ignore[attr-defined]
        seeded = torch.Generator(device=flat.device)
        seeded.manual_seed(secrets.randbits(62))
        return torch.randint(among, (count,), device=flat.device, generator=seeded)
    return np.random.Generator(np.random.Philox(secrets.randbits(64))).integers(among, size=count)
