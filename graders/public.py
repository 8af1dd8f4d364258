"""What `check` and `bench` tell a session: smoke and scored shapes at the public seed, no more."""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from graders import failures, machine
from graders.base import GradeRequest, PublicReport
from graders.buffers import room_for
from graders.candidate import Candidate, candidate_of
from graders.correctness import CaseRun, run_cases
from graders.errors import GraderVoid, SubmissionFailed, readable
from graders.language import examine
from graders.referee import WorkerSession
from graders.timing import outputs_of, timed_calls, verify
from sandboxes.errors import SandboxError
from tasks.case import Case
from tasks.errors import TaskError
from tasks.spec import Shape
from transcripts.words import GradeResult

PUBLIC_SEED = 1
LOOK_S = 0.3  # of a shape under `bench`, draw and reference included
LEAST_CALLS, MOST_CALLS = 2, 100

Part = Callable[[Candidate], PublicReport]


def report(request: GradeRequest, part: Part) -> PublicReport:
    """Run a public part; every ending becomes a text that the agent can act on."""
    try:
        request = replace(request, device=machine.resolved(request.device))
        with candidate_of(request) as candidate:
            examine(candidate)
            return part(candidate)
    except SubmissionFailed as failure:
        return PublicReport(False, failure.result, f"{failure.result}: {failure}")
    except (GraderVoid, SandboxError, TaskError) as error:
        return _void(str(error))
    except Exception as error:  # noqa: BLE001 - a session goes on whatever fails here
        return _void(failures.defect(error))


def _void(why: str) -> PublicReport:
    text = f"void: the grader failed, your code is not to blame: {why}"
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
    """Milliseconds of one call of every timed shape: a quick look, not the grade's timing.

    The inputs are the public ones, drawn once; a grade draws anew for each call.
    """
    medians, lines = {}, []
    with machine.apart_from_worker(), candidate.session(machine.worker_core()) as session:
        for shape in candidate.timed_shapes:
            samples = _look(session, candidate, shape)
            medians[shape.name] = statistics.median(samples)
            lines.append(
                f"{shape.name}: {medians[shape.name]:.4f} ms "
                f"({min(samples):.4f} to {max(samples):.4f} over {len(samples)} calls)"
            )
    head = "median of one call on one core, the trip to your process included; outputs were right"
    return PublicReport(True, GradeResult.PASS, "\n".join([head, *lines]), medians)


def _look(session: WorkerSession, candidate: Candidate, shape: Shape) -> list[float]:
    """Milliseconds of repeated calls on the same inputs; the first is checked and not counted."""
    stop_at = time.monotonic() + LOOK_S
    draw = candidate.draw(shape, PUBLIC_SEED)
    expected = candidate.expected(draw)
    room = max(room_for(outputs) for outputs in expected)
    verify(candidate, draw, outputs_of(timed_calls(session, candidate, draw, room)), expected)
    found: list[float] = []
    while len(found) < LEAST_CALLS or (len(found) < MOST_CALLS and time.monotonic() < stop_at):
        candidate.check_time()
        found += [a.elapsed_ns / 1e6 for a in timed_calls(session, candidate, draw, room)]
    return found


def _cases(candidate: Candidate) -> Iterator[Case]:
    scored = () if candidate.rehearsed else candidate.task.shapes
    for shape in (*candidate.task.smoke, *scored):
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
    told = readable(log_tail[-2000:])
    return f"\nprinted by your code (end):\n{told}" if told.strip() else ""
