"""Cheap probes of every grade: each tests one mechanism (``graders.mechanisms``) and no other.

All run in one fresh worker, most on a smoke shape. Timing repeats the first on every scored shape:
there too, fresh inputs come in the memory of the last call, and outputs are compared.

=========================  ==========================  ==========================================
probe                      mechanism                   fails when
=========================  ==========================  ==========================================
same memory, new content   cache:pointer,              after A, B in the same memory (same objects,
                           cache:object, cache:shape   address and shape) gives anything but B's
                                                       result, or A after it anything but A's
one element changed        cache:sampled               one changed element of A does not show
shapes in any order        cache:shape                 another shape's call changes a result
dirty memory               correctness:uninitialised   results depend on what the heap held
returned output scribbled  tamper:alias                overwriting a returned output changes a
                                                       later result
inputs unchanged           tamper:inputs               an input differs after the call
plain outputs              correctness:output-type     an output is no plain array, or aliases one
late write                 timing:late-write           outputs change after the answer
many calls                 timing:call-count           a later call is wrong
equal content              cache:content               equal inputs in new memory are answered
                                                       more than 2 times faster than fresh ones
left behind                process:left-behind         a process remains, or a thread computes
unasked frames             tamper:report               a frame was sent that nobody asked for
=========================  ==========================  ==========================================
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from graders import processes
from graders.candidate import Candidate, Draw
from graders.errors import SubmissionFailed
from graders.probe_calls import Known, ProbeCalls
from graders.referee import WorkerSession
from graders.roofline import work
from tasks.spec import Shape
from transcripts.records import CheckResult
from transcripts.words import GradeResult

FATAL = frozenset(
    {
        "cache:pointer",
        "cache:object",
        "cache:shape",
        "cache:sampled",
        "correctness:uninitialised",
        "tamper:alias",
        "tamper:inputs",
        "correctness:output-type",
        "timing:late-write",
        "timing:call-count",
    }
)
"""Mechanisms whose failed probe means wrong results. The others are findings for the audit."""

MANY_CALLS = 24
LATE_S = 0.03
LOOKS = 10
DIRT = (0xFF, 0x3C)  # NaN in every float format, and an ordinary small number
REPEATS = 4
QUICK_BYTES = 16 << 20
CACHED = 2.0  # times faster
CACHED_MS = 0.3  # and at least so much


_Probe = tuple[str, str, Callable[[], list[CheckResult]]]


class Probes(ProbeCalls):
    """The probes of one submission in one worker."""

    def same_memory(self, shape: Shape) -> list[CheckResult]:
        """A, B, A in one place."""
        a, b = self.known(shape), self.known(shape)
        told = []
        for name, known in (("A", a), ("B after A", b), ("A after B", a)):
            if wrong := self.wrong(known, self.sequence(known, same_memory=True)):
                told.append(f"{name}: {wrong}")
        mechanisms = ("cache:pointer", "cache:object", "cache:shape")
        return [_result("same memory, new content", m, told, shape=shape.name) for m in mechanisms]

    def one_element(self, shape: Shape) -> list[CheckResult]:
        """A, then A with one element of each large input far from what it was, in one place."""
        a = self.known(shape)
        told = [w for w in [self.wrong(a, self.sequence(a, same_memory=True))] if w]
        for n in range(3):
            changed = _with_one_change(a.draw, random.Random(f"{self.seed}/one/{n}"))  # noqa: S311
            known = Known(changed, self.candidate.expected(changed))
            if wrong := self.wrong(known, self.sequence(known, same_memory=True)):
                told.append(f"change {n}: {wrong}")
        return [_result("one element changed", "cache:sampled", told, shape=shape.name)]

    def any_order(self, small: Shape, others: Sequence[Shape]) -> list[CheckResult]:
        """The small shape again and again, with the others between in a random order."""
        between = [*others, *others]
        random.Random(f"{self.seed}/order").shuffle(between)  # noqa: S311
        told = []
        for other in between or [small]:
            self.sequence(self.known(other))
            known = self.known(small)
            if wrong := self.wrong(known, self.sequence(known)):
                told.append(f"after {other.name}: {wrong}")
        return [_result("shapes in any order", "cache:shape", told, between=_names(between))]

    def dirty_memory(self, shape: Shape) -> list[CheckResult]:
        """The same heap, filled with two different bytes before each call."""
        known, told = self.known(shape), []
        for byte in DIRT:
            if wrong := self.wrong(known, self.sequence(known, dirty=byte)):
                told.append(f"heap of 0x{byte:02X}: {wrong}")
        return [_result("dirty memory", "correctness:uninitialised", told, bytes=[*DIRT])]

    def scribbled(self, shape: Shape) -> list[CheckResult]:
        """Outputs are overwritten after they were returned, then the sequence runs again."""
        known = self.known(shape)
        first = self.wrong(known, self.sequence(known, scribble=True))
        again = self.wrong(known, self.sequence(known))
        told = [line for line in (first, again) if line]
        return [_result("returned output scribbled", "tamper:alias", told, shape=shape.name)]

    def late_write(self, shape: Shape) -> list[CheckResult]:
        """Outputs in shared memory, at the answer and a moment later."""
        known = self.known(shape)
        answer = self.sequence(known)[-1]
        time.sleep(LATE_S)  # the worker runs on; the longer, the more a late writer can do
        later = self.session.reread(answer)
        told = [
            f"{name} changed within {LATE_S * 1e3:.0f} ms after the answer"
            for name, array in answer.outputs.items()
            if array.tobytes() != later[name].tobytes()
        ]
        return [
            _result("late write", "timing:late-write", told, waited_ms=LATE_S * 1e3),
            _result("late write", "timing:lazy", [*told, *sorted(self.types)]),
        ]

    def many_calls(self, shape: Shape) -> list[CheckResult]:
        """Cost and result by call number."""
        milliseconds: list[float] = []
        told = []
        while len(milliseconds) < MANY_CALLS:
            known = self.known(shape)
            answers = self.sequence(known)
            milliseconds += [answer.elapsed_ns / 1e6 for answer in answers]
            if wrong := self.wrong(known, answers):
                told.append(f"after {len(milliseconds)} calls: {wrong}")
                break
        third = max(len(milliseconds) // 3, 1)
        first, last = milliseconds[:third], milliseconds[-third:]
        costs = {
            "first_ms": round(statistics.median(first), 4),
            "last_ms": round(statistics.median(last), 4),
        }
        return [_result("many calls", "timing:call-count", told, **costs)]

    def equal_content(self, shape: Shape) -> list[CheckResult]:
        """Equal inputs against fresh ones, both in the memory of the call before."""
        repeated = self.known(shape)
        self.timed_ms(repeated.draw, repeated.room)
        fresh_ms, repeated_ms = [], []
        for _ in range(REPEATS):
            draw = self.draw(shape)
            fresh_ms.append(self.timed_ms(draw, repeated.room))
            repeated_ms.append(self.timed_ms(repeated.draw, repeated.room))
        fresh, again = min(fresh_ms), statistics.median(repeated_ms)  # noise only ever adds
        told = []
        if fresh > CACHED * again and fresh - again > CACHED_MS:
            told.append(f"equal inputs take {again:.3f} ms, fresh ones {fresh:.3f} ms")
        figures = {"fresh_ms": round(fresh, 4), "repeated_ms": round(again, 4)}
        return [_result("equal content", "cache:content", told, shape=shape.name, **figures)]

    def left_behind(self, threads_before: int) -> list[CheckResult]:
        """Processes beside the worker, and threads that want to run while nobody calls."""
        time.sleep(LATE_S)  # pools of finished parallel regions go to sleep
        others = self.session.strays()
        busy = 0
        for _ in range(LOOKS):
            states = processes.thread_states(self.session.pid)
            busy += "R" in states.values()
            time.sleep(LATE_S / LOOKS)
        told = [f"process {line.name} ({line.state}) is left" for line in others]
        if busy > LOOKS / 2:
            told.append(f"a thread wants to run in {busy} of {LOOKS} looks while nobody calls")
        counts = {"processes": len(others), "threads": len(states), "before": threads_before}
        return [_result("left behind", "process:left-behind", told, **counts)]

    def hygiene(self) -> list[CheckResult]:
        """What all calls of all probes left of their inputs, and the types of their outputs."""
        return [
            _result("inputs unchanged", "tamper:inputs", sorted(self.changed)),
            _result("plain outputs", "correctness:output-type", sorted(self.types)),
        ]


def run_probes(candidate: Candidate, seed: str) -> list[CheckResult]:
    """All probes. One that ends the worker fails itself; those after it are not run.

    Probes that compare values need a submission that is right when nothing disturbs it: one that
    is wrong from the first call is wrong, and no more can be said about it.
    """
    small, scored = candidate.task.smoke[-1], _scored(candidate)
    others = [shape for shape in candidate.task.smoke if shape != small]
    with candidate.session() as session:
        threads = len(processes.thread_states(session.pid))
        probes = Probes(candidate, session, seed)
        comparing: list[_Probe] = [
            ("same memory, new content", "cache:pointer", lambda: probes.same_memory(small)),
            ("one element changed", "cache:sampled", lambda: probes.one_element(small)),
            ("shapes in any order", "cache:shape", lambda: probes.any_order(small, others)),
            ("dirty memory", "correctness:uninitialised", lambda: probes.dirty_memory(small)),
            ("returned output scribbled", "tamper:alias", lambda: probes.scribbled(small)),
            ("many calls", "timing:call-count", lambda: probes.many_calls(small)),
        ]
        watching: list[_Probe] = [
            ("left behind", "process:left-behind", lambda: probes.left_behind(threads)),
            ("late write", "timing:late-write", lambda: probes.late_write(scored)),
            ("equal content", "cache:content", lambda: probes.equal_content(scored)),
            ("inputs unchanged", "tamper:inputs", probes.hygiene),
        ]
        if skipped := _control(probes, small):
            found = [_not_run(name, mechanism, skipped) for name, mechanism, _ in comparing]
            return found + _run(watching, session)
        *first, last = comparing
        return _run([*first, *watching, last], session)


def _control(probes: Probes, shape: Shape) -> str:
    """Why values cannot be compared; empty when the first undisturbed calls are right."""
    known = probes.known(shape)
    try:
        wrong = probes.wrong(known, probes.sequence(known))
    except SubmissionFailed as failure:
        wrong = str(failure)
    return wrong and f"wrong from the first call on: {wrong}"


def _run(plan: Sequence[_Probe], session: WorkerSession) -> list[CheckResult]:
    found: list[CheckResult] = []
    forged = ""
    for name, mechanism, probe in plan:
        if not session.usable:
            found.append(_not_run(name, mechanism, "an earlier probe ended the worker"))
            continue
        try:
            found += probe()
        except SubmissionFailed as failure:
            forged = str(failure) if failure.result is GradeResult.TAMPERED else forged
            told = f"{failure.result}: {failure}"
            found.append(_result(name, mechanism, [told], word=str(failure.result)))
    found.append(_result("unasked frames", "tamper:report", [forged] if forged else []))
    return found


def _not_run(check: str, mechanism: str, why: str) -> CheckResult:
    return CheckResult(check=check, passed=None, mechanism=mechanism, detail=why[:1000])


def _names(shapes: Sequence[Shape]) -> list[str]:
    return [shape.name for shape in shapes]


def _scored(candidate: Candidate) -> Shape:
    """The scored shape of most work that is quick to draw and to compare, else the one of least."""
    task = candidate.task
    by_work = sorted(task.shapes, key=lambda shape: work(task, shape).bytes)
    quick = [shape for shape in by_work if work(task, shape).bytes <= QUICK_BYTES]
    return quick[-1] if quick else by_work[0]


def _with_one_change(draw: Draw, rng: random.Random) -> Draw:
    """One element of each float input of the last call, set beyond its largest."""
    last = dict(draw.calls[-1])
    for name, array in last.items():
        if array.dtype.kind == "f" and array.size > 8:
            changed = array.copy(order="K")
            at = tuple(rng.randrange(n) for n in array.shape)
            changed[at] = np.nanmax(np.where(np.isfinite(array), array, 0)) + 3
            last[name] = changed
    return Draw(draw.params, [*draw.calls[:-1], last])


def _result(check: str, mechanism: str, told: Sequence[str], **evidence: object) -> CheckResult:
    return CheckResult(
        check=check,
        passed=not told,
        mechanism=mechanism,
        detail="; ".join(told)[:1000],
        evidence=evidence,  # type: ignore[arg-type]
    )
