"""Grading from a request to a grade: static rules, correctness, probes, rubric items, timing.

Each phase has fresh workers; timing never shares one with anything else. The first phase that finds
a failure decides the grade's word, and later phases run as far as they still tell something:

- nothing handed in: ``empty``; no file that offers the interface: ``import`` (the submission is at
  fault, so not ``unsupported``, which is about the device), its measured items "not measurable";
- a forbidden import or call: ``forbidden``; another language than the task accepts: ``language``;
- the first failed case of the plan, else the first failed probe that means wrong results, else a
  timed output that is wrong; tampering anywhere comes first;
- our own failures: ``void``.

An isolated grade measures under the machine-wide lease ``host-cpu`` (on a GPU: its UUID). What it
does before on a GPU, other grades may do beside it: they share that lease until they measure. A
neighbour can take all device memory, or all time; so what may have failed for want of either is
tried again alone, and only that counts.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from graders import failures, items, machine, performance, probes, public
from graders.base import GradeRequest, PublicReport
from graders.candidate import Candidate, candidate_of
from graders.correctness import only, plan, run_cases
from graders.errors import GraderVoid, SubmissionFailed
from graders.language import examine, refuse_language
from graders.ledger import refuse_launches
from graders.pacing.memory import give_back
from graders.preparing import Prepared, prepare
from graders.recording import Gathered, Measurement, record
from graders.survey import survey
from graders.timing import turn_name
from sandboxes.errors import SandboxError
from sandboxes.lease import lease
from tasks.errors import TaskError
from tasks.loader import load_rubric
from tasks.spec import Rubric
from transcripts.records import Grade
from transcripts.words import GradeResult

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

_OF_NEIGHBOURS = frozenset({GradeResult.TIMEOUT, GradeResult.MEMORY, GradeResult.CRASH})
"""Words that another submission on the same GPU can cause; without memory, libraries raise any."""


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
            if may_be_anothers(request, found):
                found = Gathered()
                _measure(request, seed, found, prepared, shared=False)
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


def _measure(
    request: GradeRequest,
    seed: str,
    found: Gathered,
    prepared: Prepared | None,
    *,
    shared: bool = True,
) -> None:
    task = request.task
    rubric = load_rubric(task) if (task.folder / "sealed" / "rubric.toml").is_file() else None
    try:
        if prepared is not None:
            prepared.check()
        with on_device(request, shared=shared) as alone, candidate_of(request) as candidate:
            found.language = examine(candidate)
            with found.phase("build"):
                candidate.build()
            cases = plan(candidate, seed, request.tier)
            with found.phase("correctness"):
                found.correctness = run_cases(
                    candidate, only(cases, request.only) if request.only else cases
                )
            found.fail(*found.correctness.verdict)
            if found.result not in _ENDS_IT and not request.only:
                with found.phase("probes"):
                    _probes(candidate, seed, found)
                with found.phase("ledger"):
                    _language(candidate, request, seed, found)
                if not request.correctness_only:
                    alone()
                    with found.phase("performance"):
                        performance.measure(candidate, request, rubric, found)
    except SubmissionFailed as failure:
        found.fail(failure.result, str(failure))
    if rubric is not None:
        _fill_items(rubric, found)


def _shares(request: GradeRequest) -> bool:
    """Whether others may check on the same device meanwhile."""
    return request.mode == "isolated" and request.device != "cpu"


def may_be_anothers(request: GradeRequest, found: Gathered) -> bool:
    """Whether a grade failed beside others in a way that they can cause."""
    return _shares(request) and found.lease is None and found.result in _OF_NEIGHBOURS


@contextmanager
def on_device(request: GradeRequest, *, shared: bool) -> Iterator[Callable[[], None]]:
    """Have an isolated grade's GPU, maybe with others that do not measure; the call ends it."""
    with ExitStack() as having:
        if _shares(request):
            having.enter_context(lease(turn_name(request.device), shared=shared))
            having.callback(give_back, request.device)  # who waits keeps none
        yield having.close


def _probes(candidate: Candidate, seed: str, found: Gathered) -> None:
    found.checks += probes.run_probes(candidate, seed)
    for check in found.checks:
        if check.passed is False and check.mechanism == "tamper:report":
            found.fail(GradeResult.TAMPERED, check.detail)
        if check.passed is False and check.mechanism in probes.FATAL:
            word = GradeResult(str(check.evidence.get("word", GradeResult.WRONG)))
            found.fail(word, f"probe `{check.check}`: {check.detail}")


def _language(candidate: Candidate, request: GradeRequest, seed: str, found: Gathered) -> None:
    """By what ran on the GPU, where right work ran on one.

    Raises SubmissionFailed: `language`, or `forbidden` for more launches than the task allows;
    GraderVoid where nobody's launches can be counted on this machine.
    """
    if found.result is GradeResult.PASS:
        told = survey(candidate, seed, request.tier, found.language or "")
        found.language = told.language
        found.ledgers += told.ledgers
        found.checks += told.checks
        refuse_launches(told.checks, candidate.task.most_launches)
    refuse_language(candidate.task, found.language or "")


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
