"""Grading from a request to a grade: static rules, correctness, probes, rubric items, timing.

Each phase has fresh workers; timing never shares one with anything else. The first phase that finds
a failure decides the grade's word, and later phases run as far as they still tell something:

- nothing handed in: ``empty``; no file that offers the interface: ``import`` (the submission is at
  fault, so not ``unsupported``, which is about the device), its measured items "not measurable";
- a forbidden import or call: ``forbidden``; another language than the task accepts: ``language``;
- the first failed case of the plan, else the first failed probe that means wrong results, else a
  timed output that is wrong; tampering anywhere comes first;
- our own failures: ``void``.

An isolated grade measures under the machine-wide lease ``host-cpu`` (on a GPU: its UUID).
"""

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from graders import failures, gpu_ceiling, gpu_rules, items, machine, probes, public
from graders.base import GradeRequest, PublicReport
from graders.candidate import Candidate, candidate_of
from graders.correctness import only, plan, run_cases
from graders.errors import GraderVoid, SubmissionFailed
from graders.language import examine, refuse_language
from graders.preparing import Prepared, prepare
from graders.recording import Gathered, Measurement, record
from graders.roofline import least_ms, peaks, work
from graders.survey import survey
from graders.timing import CONTENDED, SPOILT, ShapeSamples, time_shapes, turn_name
from sandboxes.errors import SandboxError
from sandboxes.lease import lease
from tasks.errors import TaskError
from tasks.loader import load_rubric
from tasks.spec import Rubric
from transcripts.records import CheckResult, Grade, Lease, ShapeCorrectness
from transcripts.words import GradeResult

DEFERRED = 3.0  # mean over median of the calls of a sequence, above which work is being put off
FLOOR_SLACK = 2.0  # a cache can beat the measured bandwidth of memory
_ENDS_IT = frozenset(
    {
        GradeResult.IMPORT,
        GradeResult.BUILD,
        GradeResult.TIMEOUT,
        GradeResult.MEMORY,
        GradeResult.CRASH,
        GradeResult.TAMPERED,
    }
)
"""Words of correctness after which probes and other measurements would only fail again."""


class RefereeGrader:
    """The grader of CPU and CUDA tasks; see `graders.base.Grader`."""

    def prepare(self, request: GradeRequest) -> Prepared:
        """What can be done before the submission's turn, beside another's grade; see there."""
        return prepare(request)

    def grade(self, request: GradeRequest, prepared: Prepared | None = None) -> Grade:
        """Measure. What a submission does is in the grade; our own failures make it ``void``."""
        started, clock = datetime.now(UTC), time.monotonic()
        seed = request.seed or secrets.token_hex(16)
        load = machine.load_per_core()
        found = Gathered()
        try:
            request = replace(request, device=machine.resolved(request.device))
            _measure(request, seed, found, prepared)
        except SubmissionFailed as failure:
            found.fail(failure.result, str(failure))
        except (GraderVoid, SandboxError, TaskError) as error:
            found.void(str(error))
        except Exception as error:  # noqa: BLE001 - one submission must not end a batch
            found.void(failures.defect(error))
        how = Measurement(seed, started, round(time.monotonic() - clock, 3), load)
        try:
            return record(request, found, how)
        except Exception as error:  # noqa: BLE001 - something gathered cannot be recorded
            nothing = Gathered()
            nothing.void(failures.defect(error))
            return record(request, nothing, how)

    def check(self, request: GradeRequest) -> PublicReport:
        """Smoke and scored shapes at the public seed."""
        return public.report(request, public.check)

    def bench(self, request: GradeRequest) -> PublicReport:
        """Time the scored shapes."""
        return public.report(request, public.bench)


def _measure(request: GradeRequest, seed: str, found: Gathered, prepared: Prepared | None) -> None:
    task = request.task
    rubric = load_rubric(task) if (task.folder / "sealed" / "rubric.toml").is_file() else None
    try:
        if prepared is not None:
            prepared.check()
        with candidate_of(request) as candidate:
            found.language = examine(candidate)
            cases = plan(candidate, seed, request.tier)
            found.correctness = run_cases(
                candidate, only(cases, request.only) if request.only else cases
            )
            found.fail(*found.correctness.verdict)
            if found.result not in _ENDS_IT and not request.only:
                _probes(candidate, seed, found)
                _language(candidate, request, seed, found)
                if not request.correctness_only:
                    _performance(candidate, request, rubric, found)
    except SubmissionFailed as failure:
        found.fail(failure.result, str(failure))
    if rubric is not None:
        _fill_items(rubric, found)


def _probes(candidate: Candidate, seed: str, found: Gathered) -> None:
    found.checks += probes.run_probes(candidate, seed)
    for check in found.checks:
        if check.passed is False and check.mechanism == "tamper:report":
            found.fail(GradeResult.TAMPERED, check.detail)
        if check.passed is False and check.mechanism in probes.FATAL:
            word = GradeResult(str(check.evidence.get("word", GradeResult.WRONG)))
            found.fail(word, f"probe `{check.check}`: {check.detail}")


def _language(candidate: Candidate, request: GradeRequest, seed: str, found: Gathered) -> None:
    """By what ran on the GPU, where right work ran on one. Raises SubmissionFailed, `language`."""
    if found.result is GradeResult.PASS:
        told = survey(candidate, seed, request.tier, found.language or "")
        found.language = told.language
        found.ledgers += told.ledgers
        found.checks += told.checks
    refuse_language(candidate.task, found.language or "")


def _performance(
    candidate: Candidate, request: GradeRequest, rubric: Rubric | None, found: Gathered
) -> None:
    """Figures. Time is measured of right results only, in a turn of its own."""
    wanted = [item for item in rubric.items if item.kind == "measured"] if rubric else []
    for item in wanted:
        if item.measure in ("memory_growth", "self_test"):
            found.items.append(items.measure(item, candidate))
    if found.result is not GradeResult.PASS:
        return
    strict = request.mode == "isolated"
    with _turn(request, found), gpu_rules.watched(request.device, strict, found.readings):
        machine.wait_until_idle()
        found.ceilings = _ceilings(candidate, measured=strict)
        found.items += [items.measure(i, candidate) for i in wanted if i.measure == "cost_growth"]
        try:
            _time(candidate, request, found)
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
    found.samples = time_shapes(candidate, candidate.task.shapes, request.tier)
    if request.mode == "in_run" or not _above(CONTENDED, found.samples):
        return
    machine.wait_until_idle()
    found.samples = time_shapes(candidate, candidate.task.shapes, request.tier)
    if told := _above(SPOILT, found.samples):
        found.samples = []
        raise GraderVoid(
            f"contention: others took the worker's core ({told} of the median call), twice; "
            "grade again when this machine has less to do"
        )


def _above(limit: float, samples: Sequence[ShapeSamples]) -> str:
    return ", ".join(f"{s.shape}: {s.contention:.0%}" for s in samples if s.contention > limit)


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
    for shape, samples in zip(candidate.task.shapes, found.samples, strict=True):
        figures[shape.name] = round(samples.deferred, 3)
        if samples.deferred > DEFERRED:
            late.append(f"{shape.name}: the mean call takes {samples.deferred:.1f} medians")
        declared = work(candidate.task, shape)
        floor = least_ms(declared.floor_flops, declared.floor_bytes, peaks(device, shape.dtype))
        median = samples.summary().median_ms
        if floor and median < floor / FLOOR_SLACK:
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


def _contention(samples: Sequence[ShapeSamples]) -> CheckResult:
    """What others took; no suspicion, so it fails nobody."""
    told = _above(CONTENDED, samples)
    return CheckResult(
        check="contention",
        passed=None if told else True,
        detail=f"others took the worker's core ({told} of the median call)" if told else "",
        evidence={s.shape: round(s.contention, 4) for s in samples},
    )


def _fill_items(rubric: Rubric, found: Gathered) -> None:
    """Items of cases, and a reason for each measured item that has no figure."""
    have = {measurement.item for measurement in found.items}
    for item in rubric.items:
        if item.kind == "measured" and item.id not in have:
            if item.measure == "cases" and found.correctness.runs:
                found.items.append(items.from_cases(item, found.correctness))
            else:
                why = found.message or "this grade did not measure it"
                found.items.append(items.unmeasurable(item, why[:500]))
