"""Performance of a right submission: its turn of the machine, its figures, and what they betray."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from graders import gpu_ceiling, gpu_rules, items, machine
from graders.base import GradeRequest
from graders.baseline import baseline_ms
from graders.candidate import Candidate
from graders.errors import GraderVoid, SubmissionFailed
from graders.pacing.timer import can_be_paced, time_paced
from graders.recording import Gathered
from graders.roofline import least_ms, peaks, work
from graders.timing import CONTENDED, SPOILT, Samples, time_shapes, turn_name
from sandboxes.lease import lease
from tasks.spec import Rubric
from transcripts.records import CheckResult, Lease, ShapeCorrectness
from transcripts.words import GradeResult

DEFERRED = 3.0  # mean over median of the calls of a sequence, above which work is being put off
FLOOR_SLACK = {"cpu": 2.0, "cuda": 1.0}
"""A cache can beat the measured bandwidth of memory; nothing beats a datasheet's."""


def measure(
    candidate: Candidate, request: GradeRequest, rubric: Rubric | None, found: Gathered
) -> None:
    """Figures. Time is measured of right results only, in a turn of its own."""
    wanted = [item for item in rubric.items if item.kind == "measured"] if rubric else []
    for item in wanted:
        if item.measure in ("memory_growth", "self_test"):
            found.items.append(items.measure(item, candidate))
    if found.result is not GradeResult.PASS:
        return
    strict, asked = request.mode == "isolated", time.monotonic()
    with _turn(request, found), gpu_rules.watched(request.device, strict, found.readings):
        machine.wait_until_idle()
        # Waiting for the turn and for quiet is not the submission's time.
        waited_s = time.monotonic() - asked
        candidate = replace(candidate, deadline=candidate.deadline + waited_s)
        found.ceilings = _ceilings(candidate, measured=strict)
        found.items += [items.measure(i, candidate) for i in wanted if i.measure == "cost_growth"]
        try:
            _time(candidate, request, found)
            found.baseline = baseline_ms(request)
        except SubmissionFailed as failure:
            found.timed_failure = (_timed_line(failure),)
            raise
    found.checks += _timing_checks(candidate, request, found)
    device = machine.device_state(request.device, found.ceilings, 0.0)
    timings = [samples.summary() for samples in found.samples]
    for item in wanted:
        if item.measure == "roofline":
            found.items.append(items.from_timings(item, candidate.task, timings, device))


def _ceilings(candidate: Candidate, measured: bool) -> machine.Ceilings | None:
    """Of the core or the GPU; a GPU's are measured only by who has it to himself."""
    isolation = candidate.place.isolation
    if candidate.device == "cpu":
        return machine.ceilings(isolation)
    if measured:
        return gpu_ceiling.ceilings(candidate.device, isolation)
    return gpu_ceiling.recalled(candidate.device)


def _time(candidate: Candidate, request: GradeRequest, found: Gathered) -> None:
    """The figures; an isolated grade tries again when others took the core. Raises GraderVoid."""
    if can_be_paced(candidate):
        found.samples = [*time_paced(candidate, candidate.timed_shapes, request.tier)]
        return
    found.samples = [*time_shapes(candidate, candidate.timed_shapes, request.tier)]
    if request.mode == "in_run" or not _above(CONTENDED, found.samples):
        return
    machine.wait_until_idle()
    found.samples = [*time_shapes(candidate, candidate.timed_shapes, request.tier)]
    if told := _above(SPOILT, found.samples):
        found.samples = []
        raise GraderVoid(
            f"contention: others took the worker's core ({told} of the median call), twice; "
            "grade again when this machine has less to do"
        )


def _above(limit: float, samples: Sequence[Samples]) -> str:
    return ", ".join(
        f"{s.shape}: {s.contention:.0%}" for s in samples if (s.contention or 0) > limit
    )


@contextmanager
def _turn(request: GradeRequest, found: Gathered) -> Iterator[None]:
    """The exclusive turn of an isolated grade."""
    if request.mode == "in_run":
        yield
        return
    name = turn_name(request.device)
    with lease(name) as waited:
        started = time.monotonic()
        try:
            yield
        finally:
            held = time.monotonic() - started
            found.lease = Lease(name=name, waited_s=round(waited, 3), held_s=round(held, 3))


def _timed_line(failure: SubmissionFailed) -> ShapeCorrectness:
    return ShapeCorrectness(
        shape="timed calls",
        group="timed",
        passed=False,
        runs=1,
        failures=1,
        detail=str(failure),
    )


def _timing_checks(
    candidate: Candidate, request: GradeRequest, found: Gathered
) -> Iterator[CheckResult]:
    yield _contention(found.samples)
    device = machine.device_state(request.device, found.ceilings, 0.0)
    late, fast = [], []
    figures: dict[str, float] = {}
    for shape, samples in zip(candidate.timed_shapes, found.samples, strict=True):
        figures[shape.name] = round(samples.deferred, 3)
        if samples.deferred > DEFERRED:
            late.append(f"{shape.name}: the mean call takes {samples.deferred:.1f} medians")
        declared = work(candidate.task, shape)
        floor = least_ms(declared.floor_flops, declared.floor_bytes, peaks(device, shape.dtype))
        median = samples.summary().median_ms
        if floor and median < floor / FLOOR_SLACK[device.kind]:
            fast.append(f"{shape.name}: {median:.4f} ms, the least work needs {floor:.4f} ms")
    yield CheckResult(
        check="deferred work",
        passed=not late,
        mechanism="timing:deferred",
        detail="; ".join(late),
        evidence={"mean_over_median": dict(figures)},
    )
    yield CheckResult(
        check="proven floor", passed=not fast, mechanism="timing:floor", detail="; ".join(fast)
    )
    yield from _claims(found.samples)


def _claims(samples: Sequence[Samples]) -> Iterator[CheckResult]:
    """Whether the worker's own events agree with the referee's clock."""
    claims = {s.shape: claim for s in samples if (claim := s.summary().claim) is not None}
    if claims:
        refused = [f"{shape}: {claim.why}" for shape, claim in claims.items() if not claim.accepted]
        yield CheckResult(
            check="claimed events",
            passed=not refused,
            mechanism="timing:claimed-events",
            detail="; ".join(refused),
            evidence={shape: round(claim.predicted_ms, 6) for shape, claim in claims.items()},
        )


def _contention(samples: Sequence[Samples]) -> CheckResult:
    """What others took; no suspicion, so it fails nobody."""
    measured = {s.shape: round(s.contention, 4) for s in samples if s.contention is not None}
    if not measured:
        return CheckResult(check="contention", passed=None, detail="not measured by paced calls")
    told = _above(CONTENDED, samples)
    return CheckResult(
        check="contention",
        passed=None if told else True,
        detail=f"others took the worker's core ({told} of the median call)" if told else "",
        evidence=dict(measured),
    )
