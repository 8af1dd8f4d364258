"""What `check` and `bench` tell a session: smoke and scored shapes at the public seed, no more."""

from collections.abc import Callable, Iterator

from graders.base import GradeRequest, PublicReport
from graders.candidate import Candidate, candidate_of
from graders.correctness import CaseRun, run_cases
from graders.errors import GraderVoid, SubmissionFailed
from graders.language import examine
from graders.timing import time_shapes
from sandboxes.errors import SandboxError
from tasks.case import Case
from tasks.errors import TaskError
from transcripts.words import GradeResult

PUBLIC_SEED = 1

Part = Callable[[Candidate], PublicReport]


def report(request: GradeRequest, part: Part) -> PublicReport:
    """Run a public part; every ending becomes a text that the agent can act on."""
    try:
        with candidate_of(request) as candidate:
            examine(candidate)
            return part(candidate)
    except SubmissionFailed as failure:
        return PublicReport(False, failure.result, f"{failure.result}: {failure}")
    except (GraderVoid, SandboxError, TaskError) as error:
        text = f"void: the grader failed, your code is not to blame: {error}"
        return PublicReport(False, GradeResult.VOID, text)


def check(candidate: Candidate) -> PublicReport:
    """Every public shape once."""
    done = run_cases(candidate, _cases(candidate))
    word, _ = done.verdict
    lines = [_line(run) for run in done.runs]
    passed = sum(run.passed for run in done.runs)
    head = f"{word}: {passed} of {len(done.runs)} public shapes are right"
    tail = _printed(done.log_tail) if word is not GradeResult.PASS else ""
    return PublicReport(word is GradeResult.PASS, word, "\n".join([head, *lines]) + tail)


def bench(candidate: Candidate) -> PublicReport:
    """Milliseconds of one call of every scored shape."""
    medians, lines = {}, []
    for samples in time_shapes(candidate, candidate.task.shapes, "quick"):
        timing = samples.summary()
        medians[timing.shape] = timing.median_ms
        lines.append(
            f"{timing.shape}: {timing.median_ms:.4f} ms "
            f"(95% {timing.ci_low_ms:.4f} to {timing.ci_high_ms:.4f}, {timing.calls} calls, "
            f"of which {timing.overhead_ms:.4f} ms is the trip to your process)"
        )
    head = "median of one call on one core; outputs were right"
    return PublicReport(True, GradeResult.PASS, "\n".join([head, *lines]), medians)


def _cases(candidate: Candidate) -> Iterator[Case]:
    for shape in (*candidate.task.smoke, *candidate.task.shapes):
        draw = candidate.draw(shape, PUBLIC_SEED)
        seed = f"make_inputs(shape, {PUBLIC_SEED})"
        yield Case(shape.name, "public", seed, draw.params, draw.calls, candidate.expected(draw))


def _line(run: CaseRun) -> str:
    if run.passed:
        close = run.worst
        error = (
            f", largest error {close.max_abs_error:.3g}" if close and close.max_abs_error else ""
        )
        return f"  ok    {run.name}{error}"
    where = ""
    if run.worst is not None and not run.worst.passed:
        count = run.worst.bad_elements
        at = f" at {list(run.worst.worst_index)}" if run.worst.worst_index is not None else ""
        where = f" ({count} bad elements, worst{at})" if count else ""
    return f"  {run.word:<5} {run.name}: {run.detail}{where}; inputs: {run.seed}"


def _printed(log_tail: str) -> str:
    return f"\nprinted by your code (end):\n{log_tail[-2000:]}" if log_tail.strip() else ""
