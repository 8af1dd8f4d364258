"""Generated cases: whatever a task declares, its inputs are also drawn from ``tasks.patterns``.

A plan follows from its seed, the declaration and the constants of a submission (``hints``), and has
to replay for as long as its grade is kept. So it is not drawn by Hypothesis, whose choices change
from one version to the next and with what it has found before, but by one counter-based generator,
Philox, keyed by (seed of the plan, number of the case). NumPy promises its raw output for good, but
not its distributions (NEP 19), so the few that are needed are our own. Each case replays alone. The
base values are those of the task's own ``make_inputs``.

Sizes are those of a smoke shape, or drawn where the declaration gives ranges: ends, powers of two
and their neighbours, neighbours of the source's constants, anything. Which tolerance is right for
inputs that no task author has seen follows from the reference: an error as large as what one more
rounding of the inputs makes of it is no fault of the submission (``noise`` of a case).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tasks.case import Arrays, Case
from tasks.formula import evaluate
from tasks.loader import load_cases
from tasks.patterns import ORDINARY, PATTERNS, Draws, Pattern
from tasks.rawfloats import decoded, encoded, eps
from tasks.spec import Shape, Sizes, Task
from tasks.tensors import Reference

LARGEST = 16.0  # times the largest magnitude of a draw, where the task names no limit
EVERY_VIEW, EVERY_REPEAT = 4, 6  # one case in so many comes as views, or as A, B, A'
EVERY_HINT = 3  # and so many has a dim that is a constant of the source
_TRIES = 50  # sizes drawn until the declared relations hold


def all_cases(
    task: Task,
    reference: Reference,
    seed: int,
    tier: str,
    device: Literal["cpu", "cuda"] = "cpu",
    hints: Sequence[float] = (),
) -> Iterator[Case]:
    """The task's own cases (``sealed/cases.py``, where it has one), then the generated ones."""
    if (task.folder / "sealed" / "cases.py").is_file():
        yield from load_cases(task, device)(seed, tier)
    yield from generated(task, reference, seed, tier, hints)


def generated(
    task: Task, reference: Reference, seed: int, tier: str, hints: Sequence[float] = ()
) -> Iterator[Case]:
    """The generated cases of a plan; ``seed`` below 2**64, ``hints`` constants of the source."""
    names = [name for name in PATTERNS if name not in task.properties.leave_out]
    count = task.properties.cases * (2 if tier == "full" else 1)
    for number in range(count):
        maker = _Maker(task, reference, Draws(seed, number), hints)
        pattern = names[number % len(names)]
        yield maker.case(number, pattern, f"{seed}/generated/{number}")


class _Maker:
    """Makes one case."""

    def __init__(
        self, task: Task, reference: Reference, draws: Draws, hints: Sequence[float]
    ) -> None:
        self._task, self._reference, self._draws, self._hints = task, reference, draws, hints
        self._raw: Mapping[str, str] = task.interface.raw_inputs

    def case(self, number: int, pattern: str, seed: str) -> Case:
        shape = self._shape(number)
        made = self._made(shape)
        params, calls = made["params"], [dict(call) for call in made["calls"]]
        chosen = self._chosen(calls[0])
        for call in calls:
            for name in [name for name in call if name in chosen]:
                call[name] = self._patterned(PATTERNS[pattern], name, call[name])
        if len(calls) == 1 and self._task.properties.repeats and number % EVERY_REPEAT == 5:
            pattern += ", A, B, A'"
            calls = [calls[0], self._made(shape)["calls"][0], self._with_one_change(calls[0])]
        if number % EVERY_VIEW == 3 and self._task.properties.strided:
            pattern += ", views"
            calls = [self._viewed(call) for call in calls]
        expected = self._reference.reference(params, calls)
        name = f"generated {number}: {pattern}"
        noise = self._noise(params, calls, expected)
        return Case(name, "property", seed, params, calls, expected, noise=noise)

    def _made(self, shape: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = self._reference.make_inputs(dict(shape), self._draws.below(1 << 62))
        return made

    def _shape(self, number: int) -> dict[str, Any]:
        """A smoke shape, its declared dims drawn anew; one of them a constant of the source's."""
        shape: Shape = self._draws.pick(self._task.smoke)
        declared = self._task.properties
        for _ in range(_TRIES if declared.dims else 0):
            drawn = {name: self._size(sizes) for name, sizes in declared.dims.items()}
            dims = {**shape.dims, **drawn, **self._hinted(number)}
            if all(evaluate(text, dims) >= 0 for text in declared.holds):
                return {**dims, "dtype": shape.dtype}
        return {**shape.dims, "dtype": shape.dtype}

    def _size(self, sizes: Sizes) -> int:
        """One size of a dim: an end, next to a power of two, or any."""
        step, least, most = sizes.multiple_of, sizes.least, sizes.most
        edges = [(1 << n) + by for n in range(most.bit_length()) for by in (-1, 0, 1)]
        fit = [size for size in edges if _fits(size, sizes)]
        anything = least + self._draws.below((most - least) // step + 1) * step
        options: list[int] = [least, most, anything, self._draws.pick(fit or [anything])]
        return self._draws.pick(options)

    def _hinted(self, number: int) -> dict[str, int]:
        """In every third case one dim is a constant, each in its turn, then their neighbours."""
        turn, left = divmod(number, EVERY_HINT)
        turn, dim = divmod(turn, len(self._task.properties.dims))
        name, sizes = list(self._task.properties.dims.items())[dim]
        beside = [int(hint) + by for by in (0, 1, -1) for hint in self._hints if hint < 1 << 53]
        fit = [size for size in beside if _fits(size, sizes)]
        return {name: fit[turn % len(fit)]} if fit and left == EVERY_HINT - 1 else {}

    def _chosen(self, call: Arrays) -> set[str]:
        """Some of the float inputs, at least one where there is one."""
        wanted = self._task.properties.inputs
        floats = [
            name
            for name, array in call.items()
            if array.size
            and (array.dtype.kind == "f" or name in self._raw)
            and (wanted is None or name in wanted)
        ]
        if not floats:
            return set()
        some = {name for name in floats if self._draws.below(2)}
        return some | {self._draws.pick(floats)}

    def _patterned(self, pattern: Pattern, name: str, array: np.ndarray) -> np.ndarray:
        if not array.size:
            return array
        values = self._values(name, array)
        magnitude = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
        scale = float(np.sqrt(np.mean(np.square(np.nan_to_num(values))))) or 1.0
        limit = self._task.properties.largest or LARGEST * magnitude
        hints = [abs(hint) for hint in self._hints if 0 < abs(hint) <= limit] or ORDINARY
        changed = pattern(self._draws, values, scale, hints)
        return self._stored(name, np.clip(changed, -limit, limit), array)

    def _values(self, name: str, array: np.ndarray) -> np.ndarray:
        """A contiguous float64 copy of what the array means."""
        plain = decoded(self._raw[name], array) if name in self._raw else array
        return np.array(plain, np.float64, order="C")

    def _stored(self, name: str, values: np.ndarray, like: np.ndarray) -> np.ndarray:
        if name in self._raw:
            return encoded(self._raw[name], values).reshape(like.shape)
        with np.errstate(over="ignore"):
            return values.astype(like.dtype)

    def _with_one_change(self, call: Arrays) -> dict[str, np.ndarray]:
        """The call with one element of one input far from what it was, not among the first."""
        changed = dict(call)
        names = self._chosen(call)
        for name in sorted(names)[:1]:
            values = self._values(name, changed[name])
            half = values.size // 2
            at = half + self._draws.below(values.size - half)
            values.reshape(-1)[at] += 1 + np.abs(values).max()
            changed[name] = self._stored(name, values, changed[name])
        return changed

    def _viewed(self, call: Arrays) -> dict[str, np.ndarray]:
        """The same values in other places: strides are positive, as CUDA tensors have them."""
        return {
            name: self._view(array) if name in self._task.properties.strided else array
            for name, array in call.items()
        }

    def _view(self, array: np.ndarray) -> np.ndarray:
        if not array.ndim:
            return array
        ways: list[Callable[[np.ndarray], np.ndarray]] = [
            lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
            lambda a: np.concatenate([a, a[..., :1]], axis=-1)[..., : a.shape[-1]],
            lambda a: np.ascontiguousarray(a.swapaxes(0, -1)).swapaxes(0, -1),
        ]
        return self._draws.pick(ways)(array)

    def _noise(
        self, params: Mapping[str, Any], calls: Sequence[Arrays], expected: Sequence[Arrays]
    ) -> dict[str, tuple[float, float]]:
        """Largest and rms difference, by leaf, when every float input is rounded once more."""
        raw = self._task.interface.raw_outputs
        coarse = max(
            (eps(raw.get(name, str(leaf.dtype))) for name, leaf in _floats(expected[0], raw)),
            default=0.0,
        )
        if not coarse:
            return {}
        again = self._reference.reference(params, [self._rounded(call, coarse) for call in calls])
        found: dict[str, tuple[float, float]] = {}
        for one, other in zip(expected, again, strict=True):
            for name, leaf in _floats(one, raw):
                off = _difference(leaf, other[name], raw.get(name))
                largest, rms = found.get(name, (0.0, 0.0))
                found[name] = (max(largest, off[0]), max(rms, off[1]))
        return found

    def _rounded(self, call: Arrays, coarse: float) -> dict[str, np.ndarray]:
        """Every float moved by its own precision or that of the output, whichever is finer."""
        moved = dict(call)
        for name, array in call.items():
            if array.dtype.kind == "f" or name in self._raw:
                step = min(coarse, eps(self._raw.get(name, str(array.dtype))))
                values = self._values(name, array)
                signs = np.where(self._draws.uniform(values.shape) < 0.5, -step, step)
                moved[name] = self._stored(name, values * (1 + signs), array)
        return moved


def _fits(size: int, sizes: Sizes) -> bool:
    return sizes.least <= size <= sizes.most and not size % sizes.multiple_of


def _floats(leaves: Arrays, raw: Mapping[str, str]) -> Iterator[tuple[str, np.ndarray]]:
    for name, leaf in leaves.items():
        if leaf.dtype.kind == "f" or name in raw:
            yield name, leaf


def _difference(one: np.ndarray, other: np.ndarray, raw: str | None) -> tuple[float, float]:
    """Largest and rms difference where both are finite."""
    if raw is not None and one.dtype.kind != "f":
        one, other = decoded(raw, one), decoded(raw, other)
    with np.errstate(all="ignore"):
        off = np.abs(one.astype(np.float64) - other.astype(np.float64))
        off = off[np.isfinite(off)]
        return float(off.max(initial=0.0)), float(np.sqrt(np.mean(off**2))) if off.size else 0.0
