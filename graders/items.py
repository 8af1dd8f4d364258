"""Measured rubric items that are no cases: growth of cost and memory, own tests, roofline.

What an item's ``params`` say:

``cost_growth``    ``shape`` (dims), ``dtype``, ``seed``, ``dim`` with two or more ``values``,
                   ``skip_calls``, ``max_ratio``: median call at the last value over the first.
``memory_growth``  ``shape``, ``dtype``, ``seed``, ``skip_calls``, ``expected_bytes`` (formula),
                   ``min_ratio``, ``max_ratio``: growth of the worker's private resident memory, as
                   the kernel shows it to the referee. Or ``method = "leaves"``: ``shape`` (name),
                   ``setup``, ``prefix``, ``items_at_most``, ``bytes_at_most``, ``bytes_at_least``:
                   outputs that the adapter reports under a prefix. Less than the least cannot be
                   enough, so that the rest is hidden, and neither bound is met.
``self_test``      ``files`` (patterns), ``arguments``, ``timeout_s``, ``mutations`` (``name``,
                   ``entry``, ``change``): the submission's own tests run green, and fail when the
                   result of an entry is changed.
``roofline``       ``full_marks_at``: the mean fraction over the shapes, of the regime's ceiling.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from graders import machine, selftest
from graders.buffers import CallMemory, room_for
from graders.candidate import Candidate, Draw
from graders.correctness import CaseRun, Correctness
from graders.errors import SubmissionFailed
from graders.referee import WorkerSession
from graders.roofline import standing
from graders.timing import verify
from tasks.formula import evaluate
from tasks.rawfloats import itemsize
from tasks.spec import RubricItem, Shape, Task
from transcripts.records import DeviceState, ItemMeasurement, ShapeTiming

LEAVES_ROOM = 4  # times the bytes of the inputs, for outputs that an adapter reports beside


def from_cases(item: RubricItem, done: Correctness) -> ItemMeasurement:
    """How many of the item's cases passed."""
    runs = [run for run in done.runs if run.item == item.id]
    if not runs:
        whys = [why for of, why in done.unmeasurable if of == item.id]
        return unmeasurable(item, whys[0] if whys else "none of its cases was run")
    return ItemMeasurement(
        item=item.id,
        measurable=True,
        passed=sum(run.passed for run in runs),
        total=len(runs),
        detail=_first_failure(runs),
    )


def from_timings(
    item: RubricItem, task: Task, timings: Iterable[ShapeTiming], device: DeviceState
) -> ItemMeasurement:
    """Mean fraction of the ceiling over the scored shapes."""
    shapes = {shape.name: shape for shape in task.shapes}
    fractions = [
        standing(task, shapes[timing.shape], timing.median_ms, device).score_fraction
        for timing in timings
        if timing.shape in shapes
    ]
    known = [fraction for fraction in fractions if fraction is not None]
    if not known:
        return unmeasurable(item, "nothing was timed")
    mean = statistics.fmean(known)
    wanted = float(str(item.params.get("full_marks_at", 1.0)))
    told = f"{mean:.3f} of the ceiling on average over {len(known)} shapes; full marks at {wanted}"
    return ItemMeasurement(
        item=item.id, measurable=True, value=mean, unit="fraction of ceiling", detail=told
    )


def measure(item: RubricItem, candidate: Candidate) -> ItemMeasurement:
    """Measure an item in fresh workers; a submission's failure in it is a failed item."""
    try:
        if item.measure == "cost_growth":
            return _cost_growth(item, candidate)
        if item.measure == "memory_growth":
            by_leaves = item.params.get("method") == "leaves"
            return (_kept_leaves if by_leaves else _memory_growth)(item, candidate)
        return selftest.measure(item, candidate)
    except SubmissionFailed as failure:
        told = f"{failure.result}: {failure}"
        return ItemMeasurement(item=item.id, measurable=True, total=1, detail=told[:500])


def unmeasurable(item: RubricItem, why: str) -> ItemMeasurement:
    """Not counted, and said so."""
    return ItemMeasurement(item=item.id, measurable=False, detail=why)


def _cost_growth(item: RubricItem, candidate: Candidate) -> ItemMeasurement:
    params: dict[str, Any] = item.params
    medians = []
    with machine.apart_from_worker(), candidate.session(machine.worker_core()) as session:
        for value in params["values"]:
            dims = {**params["shape"], params["dim"]: value}
            draw = candidate.draw(Shape(name="", dims=dims, dtype=params["dtype"]), params["seed"])
            milliseconds = _timed(session, candidate, draw)[params.get("skip_calls", 0) :]
            medians.append(statistics.median(milliseconds))
    ratio = medians[-1] / medians[0]
    figures = ", ".join(
        f"{median:.3f} ms at {value}"
        for value, median in zip(params["values"], medians, strict=True)
    )
    return _judged(item, ratio, "ratio", ratio <= params["max_ratio"], f"a call takes {figures}")


def _timed(session: WorkerSession, candidate: Candidate, draw: Draw) -> list[float]:
    """Milliseconds of each call; a figure of wrong results is none."""
    limit, expected = candidate.task.limits.call_s, candidate.expected(draw)
    session.setup(draw.params, limit)
    room = max(room_for(outputs) for outputs in expected)
    answers = [session.timed_call(inputs, room, limit) for inputs in draw.calls]
    verify(candidate, draw, [answer.outputs for answer in answers], expected)
    return [answer.elapsed_ns / 1e6 for answer in answers]


def _memory_growth(item: RubricItem, candidate: Candidate) -> ItemMeasurement:
    params: dict[str, Any] = item.params
    shape = Shape(name="", dims=params["shape"], dtype=params["dtype"])
    draw = candidate.draw(shape, params["seed"])
    limit, skipped = candidate.task.limits.call_s, params.get("skip_calls", 0)
    expected = candidate.expected(draw)
    room = max(room_for(outputs) for outputs in expected)
    outputs, resident = [], []
    with candidate.session() as session:
        session.setup(draw.params, limit)
        for inputs in draw.calls:
            outputs.append(session.call(inputs, room, limit).outputs)
            resident.append(session.resident_bytes())
    verify(candidate, draw, outputs, expected)
    grown = resident[-1] - resident[max(skipped - 1, 0)]
    names = {**shape.dims, "itemsize": itemsize(shape.dtype)}
    needed = evaluate(params["expected_bytes"], names)
    ratio = grown / needed
    within = params["min_ratio"] <= ratio <= params["max_ratio"]
    told = f"resident memory grew by {grown / 1e6:.1f} MB where {needed / 1e6:.1f} MB are needed"
    return _judged(item, ratio, "ratio", within, told)


def _kept_leaves(item: RubricItem, candidate: Candidate) -> ItemMeasurement:
    params: dict[str, Any] = item.params
    shape = next(shape for shape in candidate.task.shapes if shape.name == params["shape"])
    draw = candidate.draw(shape, f"item/{item.id}")
    limit = candidate.task.limits.call_s
    inputs = draw.calls[0]
    room = LEAVES_ROOM * sum(array.nbytes for array in inputs.values()) + (1 << 20)
    with candidate.session() as session:
        session.setup({**draw.params, **params["setup"]}, limit)
        answer = session.go(CallMemory(inputs, room), limit, {"extras": True})
    verify(candidate, draw, [answer.outputs], candidate.expected(draw))
    kept = [a for name, a in answer.outputs.items() if name.startswith(params["prefix"])]
    size = sum(array.nbytes for array in kept)
    names = {**shape.dims, "itemsize": itemsize(shape.dtype)}
    allowed = evaluate(params["bytes_at_most"], names)
    enough = size >= evaluate(params["bytes_at_least"], names)
    few = enough and len(kept) <= params["items_at_most"]
    told = (
        f"{len(kept)} arrays of {size / 1e6:.2f} MB are kept; at most {params['items_at_most']} "
        f"and {allowed / 1e6:.2f} MB are needed{'' if enough else '; the rest is hidden'}"
    )
    return ItemMeasurement(
        item=item.id,
        measurable=True,
        passed=int(few) + int(enough and size <= allowed),
        total=2,
        value=float(size),
        unit="bytes",
        detail=told,
    )


def _judged(item: RubricItem, value: float, unit: str, within: bool, told: str) -> ItemMeasurement:
    return ItemMeasurement(
        item=item.id,
        measurable=True,
        passed=int(within),
        total=1,
        value=value if math.isfinite(value) else None,
        unit=unit,
        detail=told,
    )


def _first_failure(runs: Sequence[CaseRun]) -> str:
    return next((f"{run.name}: {run.detail}"[:500] for run in runs if not run.passed), "")
