"""Comparison of one output with its reference: type, shape, non-finite places, values, and norm.

Floats must pass elementwise (``|out - ref| <= atol + rtol * |ref|``) *and* the normative gate
``rms(out - ref) <= rms_ratio * rms(ref)``, both in fp64. The elementwise rule alone accepts work
that was left out where outputs are small against ``atol``. Integers and booleans are exact.

Which tolerance holds: that of the leaf's dtype in the task, or, where ``raw_outputs`` says that the
bits of a leaf are bfloat16 or a float8, that of this name. Such a leaf is decoded and compared as
floats; its reference may come as bits or as the floats before they were rounded. A generated case
allows ``NOISE`` times what one more rounding of the inputs does to the reference, on top.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from graders.differences import Difference, difference
from tasks.case import GATED_FROM, Case
from tasks.rawfloats import BITS, decoded
from tasks.spec import Task
from transcripts.words import GradeResult

NOISE = 8.0
"""Roundings that an honest result may be away on top: a sum in pieces, a variance in two passes.
The prompt of ``layernorm-backward`` states the same figure for inputs with a large mean."""


@dataclass(frozen=True)
class Closeness:
    """How far one leaf is from its reference. ``word`` is ``pass``, ``wrong`` or ``nan``."""

    leaf: str
    word: GradeResult
    detail: str = ""
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    rms_ratio: float | None = None
    bad_elements: int = 0
    worst_index: tuple[int, ...] | None = None

    @property
    def passed(self) -> bool:
        """True when the leaf is right."""
        return self.word is GradeResult.PASS


@dataclass(frozen=True)
class Bounds:
    """What is allowed: elementwise and for the norm; None leaves the norm ungated."""

    atol: float
    rtol: float
    rms_ratio: float | None


def bounds(task: Task, case: Case | None, wanted: np.ndarray, leaf: str = "") -> Bounds:
    """The case's own bounds where it states them, else the task's for this leaf's dtype."""
    kind = task.interface.raw_outputs.get(leaf, str(wanted.dtype))
    declared = stated(task, kind, wanted.size)
    atol, rtol, ratio = declared.atol, declared.rtol, declared.rms_ratio
    if case is not None:
        atol = atol if case.atol is None else case.atol
        rtol = rtol if case.rtol is None else case.rtol
        ratio = ratio if case.rms_ratio is None else case.rms_ratio
        largest, rms = case.noise.get(leaf, (0.0, 0.0))
        atol += NOISE * largest
        if ratio is not None and rms:
            norm = _rms(_plain(wanted, task.interface.raw_outputs.get(leaf)))
            ratio = ratio + NOISE * rms / norm if norm else None
    return Bounds(atol, rtol, ratio)


def stated(task: Task, kind: str, size: int) -> Bounds:
    """What the task states for a dtype by its name, and for so many elements."""
    declared = task.tolerance.get(kind)
    atol, rtol = (declared.atol, declared.rtol) if declared else (0.0, 0.0)
    return Bounds(atol, rtol, task.gate.rms_ratio.get(kind) if size >= GATED_FROM else None)


def compare_all(
    task: Task,
    case: Case | None,
    outputs: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
) -> list[Closeness]:
    """Compare the relevant leaves of one call with these inputs; a missing one is wrong."""
    found = []
    for name, wanted in expected.items():
        if case is not None and case.relevant and name not in case.relevant:
            continue
        if name not in outputs:
            found.append(Closeness(name, GradeResult.WRONG, "the output is missing"))
        else:
            limits = bounds(task, case, wanted, name)
            raw = task.interface.raw_outputs.get(name)
            out, into = outputs[name], task.interface.points_into.get(name)
            found.append(
                compare_places(name, out, wanted, inputs[into])
                if into
                else compare(name, out, wanted, limits, raw)
            )
    return found


def compare(
    leaf: str, out: np.ndarray, ref: np.ndarray, limits: Bounds, raw: str | None = None
) -> Closeness:
    """Compare one leaf; ``raw`` is what its bits are, where they are no float of NumPy's."""
    dtype = np.dtype(BITS[raw]) if raw else ref.dtype
    if out.dtype != dtype or out.shape != ref.shape:
        told = f"{out.dtype} {list(out.shape)} where {dtype} {list(ref.shape)} is asked for"
        return Closeness(leaf, GradeResult.WRONG, told, bad_elements=ref.size)
    if raw is None and ref.dtype.kind != "f":
        return _exact(leaf, out, ref)
    found = difference(out, ref, limits.atol, limits.rtol, lambda piece: _plain(piece, raw))
    words = _Words(leaf, out, ref, raw)
    return words.stray(found) if found.strays else words.within(found, limits)


def compare_places(leaf: str, out: np.ndarray, ref: np.ndarray, into: np.ndarray) -> Closeness:
    """Compare indices by what they point at along ``into``'s last axis; a row's are distinct."""
    if out.dtype != ref.dtype or out.shape != ref.shape:
        told = f"{out.dtype} {list(out.shape)} where {ref.dtype} {list(ref.shape)} is asked for"
        return Closeness(leaf, GradeResult.WRONG, told, bad_elements=ref.size)
    outside = (out < 0) | (out >= into.shape[-1])
    if outside.any():
        where = _index(outside)
        told = f"{out[where]} is no place in a row of {into.shape[-1]}"
        count = int(outside.sum())
        return Closeness(leaf, GradeResult.WRONG, told, bad_elements=count, worst_index=where)
    ordered = np.sort(out, axis=-1)
    if (ordered[..., 1:] == ordered[..., :-1]).any():
        return Closeness(leaf, GradeResult.WRONG, "a place comes twice in a row", bad_elements=1)
    return _exact(
        leaf, np.take_along_axis(into, out, axis=-1), np.take_along_axis(into, ref, axis=-1)
    )


def _plain(values: np.ndarray, raw: str | None) -> np.ndarray:
    """Raw bits as the floats that they are; anything else as it is."""
    return decoded(raw, values) if raw is not None and values.dtype.kind == "u" else values


def _rms(values: np.ndarray) -> float:
    plain = values.astype(np.float64)
    return float(np.sqrt(np.mean(np.square(plain[np.isfinite(plain)])))) if plain.size else 0.0


def _exact(leaf: str, out: np.ndarray, ref: np.ndarray) -> Closeness:
    bad = out != ref
    count = int(bad.sum())
    if not count:
        return Closeness(leaf, GradeResult.PASS, max_abs_error=0.0, max_rel_error=0.0)
    error = np.abs(out.astype(np.float64) - ref.astype(np.float64))
    size = np.abs(ref.astype(np.float64))
    where = _index(np.where(bad, error, -1.0))
    told = f"{out[where]} where {ref[where]} is right (integers are exact)"
    return Closeness(
        leaf=leaf,
        word=GradeResult.WRONG,
        detail=told,
        max_abs_error=float(error.max()),
        max_rel_error=_finite(float((error[size > 0] / size[size > 0]).max(initial=0.0))),
        bad_elements=count,
        worst_index=where,
    )


@dataclass(frozen=True)
class _Words:
    """A difference of one leaf, in words."""

    leaf: str
    out: np.ndarray
    ref: np.ndarray
    raw: str | None

    def stray(self, found: Difference) -> Closeness:
        """Non-finite where the reference is not, or the other way round."""
        where, (out, ref) = self._place(found.stray_at), self._values(found.stray_at)
        word = GradeResult.NAN if np.isfinite(ref) and not np.isfinite(out) else GradeResult.WRONG
        told = f"{out} where {ref} is right"
        return Closeness(self.leaf, word, told, bad_elements=found.strays, worst_index=where)

    def within(self, found: Difference, limits: Bounds) -> Closeness:
        """Elementwise and by the norm."""
        if not found.size:
            return Closeness(self.leaf, GradeResult.PASS, max_abs_error=0.0, max_rel_error=0.0)
        ratio, told = found.rms_ratio, ""
        if found.bad:
            out, ref = self._values(found.bad_at)
            allowed = limits.atol + limits.rtol * abs(float(ref))
            told = (
                f"{out!s} where {ref!s} is right: "
                f"off by {found.bad_error:.3g}, allowed {allowed:.3g}"
            )
        elif limits.rms_ratio is not None and ratio is not None and ratio > limits.rms_ratio:
            told = f"rms error {ratio:.3g} of the reference's rms, allowed {limits.rms_ratio:.3g}"
        return Closeness(
            leaf=self.leaf,
            word=GradeResult.WRONG if told else GradeResult.PASS,
            detail=told,
            max_abs_error=_finite(found.error),
            max_rel_error=_finite(found.relative),
            rms_ratio=_finite(ratio),
            bad_elements=found.bad,
            worst_index=self._place(found.bad_at if found.bad else found.error_at),
        )

    def _values(self, at: int | None) -> tuple[np.floating, np.floating]:
        """The output and the reference at a flat place."""
        assert at is not None
        out, ref = (
            _plain(values.reshape(-1)[at : at + 1], self.raw)[0] for values in (self.out, self.ref)
        )
        return out, ref

    def _place(self, at: int | None) -> tuple[int, ...]:
        assert at is not None
        return tuple(int(n) for n in np.unravel_index(at, self.ref.shape))


def _index(of: np.ndarray) -> tuple[int, ...]:
    """Where the first largest element is."""
    return tuple(int(n) for n in np.unravel_index(int(np.argmax(of)), of.shape))


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None
