"""The ladder of precisions: what an honest result in the declared dtype is, and one rung below.

An error of half a last place in every output is what any honest result has, and must pass. A
result that was rounded to the next coarser dtype, or computed from inputs and weights rounded to
it, is work in another precision than the task asks for, and must not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tasks.case import Arrays
from tasks.impostors import Draw, passes
from tasks.rawfloats import decoded, encoded, eps
from tasks.spec import Task
from tasks.tensors import Reference, raw_of

BELOW = {
    "float64": "float32",
    "float32": "bfloat16",
    "float16": "float8_e4m3",
    "bfloat16": "float8_e4m3",
}
"""The next rung: the coarser dtype that kernels turn to for speed."""

ROOM = 2.0  # a gate over the honest work that was seen

Change = Callable[[np.ndarray, str], np.ndarray]


def wrong_rungs(task: Task, path: str, reference: Reference, draw: Draw) -> Iterator[str]:
    """What passes or fails on the wrong side of the declared precision."""
    kinds = sorted(set(filter(None, (_kind(task, *leaf) for leaf in draw.outputs[0].items()))))
    if not kinds:
        return
    if not passes(task, _each(task, draw.outputs, _half_a_place), draw.outputs):
        yield (
            f"{path}: an error of half a last place of {' and '.join(kinds)} would fail; "
            "loosen tolerance or gate"
        )
    rungs = {kind: BELOW[kind] for kind in kinds if kind in BELOW}
    if not rungs:
        return
    alone = [below for kind, below in rungs.items() if kind not in task.gate.honest]
    coarse = min(alone, key=eps) if alone else max(rungs.values(), key=eps)
    if alone and passes(task, _each(task, draw.outputs, _to_rung_below), draw.outputs):
        yield f"{path}: the result rounded to {coarse} would pass; tighten tolerance and gate"
    yield from _wide_gates(task, path)
    names = task.interface.raw_inputs
    rounded = [_all_rounded(call, names, coarse) for call in draw.calls]
    weights = draw.params.get("weights", {})
    coarser = _all_rounded(weights, task.interface.raw_weights, coarse)
    if _moved([*rounded, coarser], [*draw.calls, weights]):
        params = {**draw.params, **({"weights": coarser} if weights else {})}
        got = reference.reference(params, rounded)
        if passes(task, got, draw.outputs):
            yield (
                f"{path}: the result of inputs and weights rounded to {coarse} would pass; "
                "tighten tolerance and gate"
            )


def _wide_gates(task: Task, path: str) -> Iterator[str]:
    for kind, seen in task.gate.honest.items():
        if (allowed := task.gate.rms_ratio.get(kind, 0.0)) > ROOM * seen:
            yield (
                f"{path}: gate.rms_ratio of {kind} is {allowed:g}, more than {ROOM:g} times the "
                f"{seen:g} of gate.honest; tighten it"
            )


def _kind(task: Task, name: str, leaf: np.ndarray) -> str:
    """The float dtype of an output by its name; empty for anything else."""
    raw = task.interface.raw_outputs.get(name, "")
    return raw or (str(leaf.dtype) if leaf.dtype.kind == "f" else "")


def _each(task: Task, outputs: Sequence[Arrays], change: Change) -> list[Arrays]:
    """Every float leaf changed; the others as they are."""
    return [
        {
            name: change(leaf, kind) if (kind := _kind(task, name, leaf)) else leaf
            for name, leaf in output.items()
        }
        for output in outputs
    ]


def _half_a_place(leaf: np.ndarray, kind: str) -> np.ndarray:
    """Every other value larger or smaller by half a last place of ``kind``."""
    signs = np.where(np.arange(leaf.size).reshape(leaf.shape) % 2, 0.5, -0.5)
    if leaf.dtype.kind == "u":  # bits: the nearest number is what it is already
        return leaf
    return (leaf * (1 + signs * eps(kind))).astype(leaf.dtype)


def _to_rung_below(leaf: np.ndarray, kind: str) -> np.ndarray:
    coarse = BELOW.get(kind)
    if coarse is None:
        return leaf
    values = decoded(kind, leaf) if leaf.dtype.kind == "u" else leaf
    rounded = _rounded(values, coarse)
    return encoded(kind, rounded) if leaf.dtype.kind == "u" else rounded.astype(leaf.dtype)


def _rounded(values: np.ndarray, coarse: str) -> np.ndarray:
    """The nearest numbers with as many digits as ``coarse`` has; its range is no concern here."""
    wide = np.float64 if coarse == "float32" else np.float32
    mantissa, exponent = np.frexp(values.astype(wide))
    step = eps(coarse) / 2  # of mantissas from a half to one
    near: np.ndarray = np.ldexp(np.round(mantissa / wide(step)) * wide(step), exponent)
    return near


def _all_rounded(arrays: Arrays, names: Mapping[str, str], coarse: str) -> dict[str, np.ndarray]:
    """Floats finer than ``coarse``, rounded to it; ``names`` says whose bits are floats."""
    changed = dict(arrays)
    for name, array in arrays.items():
        raw = raw_of(names, name)
        if (raw or array.dtype.kind == "f") and eps(raw or str(array.dtype)) < eps(coarse):
            near = _rounded(decoded(raw, array) if raw else array, coarse)
            changed[name] = encoded(raw, near) if raw else near.astype(array.dtype)
    return changed


def _moved(rounded: Sequence[Arrays], calls: Sequence[Arrays]) -> bool:
    return any(
        not np.array_equal(one[name], other[name])
        for one, other in zip(rounded, calls, strict=True)
        for name in other
    )
