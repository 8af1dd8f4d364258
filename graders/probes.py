"""Cheap probes of every grade: each tests one mechanism (``graders.mechanisms``) and no other.

All run in one fresh worker, most on a smoke shape. Timing repeats the first on every scored shape:
there too, fresh inputs come in the memory of the last call, and outputs are compared.

=========================  ==========================  ==========================================
probe                      mechanism                   fails when
=========================  ==========================  ==========================================
same memory, new content   cache:pointer, :object,     after A, B in the same memory (same objects,
                           :version, :shape            address, shape and version counter) gives
                                                       anything but B's result, or A after it
freed and recycled         cache:object, :pointer      B in new objects at the address (and mostly
                                                       the identity) of freed ones gives another's
one element changed        cache:sampled               one changed element of A does not show
shapes in any order        cache:shape                 another shape's calls, of a random number,
                                                       change a result
dirty memory               correctness:uninitialised   results depend on what the heap, or the
                                                       device's allocator, held: two sentinels
returned output scribbled  tamper:alias                overwriting a returned output changes a
                                                       later result
inputs unchanged           tamper:inputs               an input differs after the call; on a GPU
                                                       it is copied back first
plain outputs              correctness:output-type     an output is no plain array, or aliases one
late write                 timing:late-write           outputs change after the answer
copied at once and later   timing:late-write, GPU:     a returned object still changes when the
                           timing:unjoined             caller's own stream is done
foreign stream (GPU)       correctness:stream          a call does not follow the current stream
many calls                 timing:call-count           a later call is wrong
equal content              cache:content               equal inputs in new memory are answered
                                                       more than 2 times faster than fresh ones
left behind                process:left-behind         a process remains, or a thread computes
context left behind (GPU)  process:left-behind         the thread has another CUDA context
unasked frames             tamper:report               a frame was sent that nobody asked for
=========================  ==========================  ==========================================

Not probed yet: that weights change only by ``load_state_dict`` or a copy that bumps their version.
"""

from collections.abc import Callable, Sequence

from graders import processes
from graders.candidate import Candidate
from graders.errors import SubmissionFailed
from graders.probe_calls import checked, not_run
from graders.probe_traces import TraceProbes
from graders.probe_values import ValueProbes
from graders.referee import WorkerSession
from graders.roofline import work
from tasks.spec import Shape
from transcripts.records import CheckResult
from transcripts.words import GradeResult

FATAL = frozenset(
    {
        "cache:pointer",
        "cache:object",
        "cache:version",
        "cache:shape",
        "cache:sampled",
        "correctness:uninitialised",
        "tamper:alias",
        "tamper:inputs",
        "correctness:output-type",
        "timing:late-write",
        "timing:unjoined",
        "timing:call-count",
    }
)
"""Mechanisms whose failed probe means wrong results. The others are findings for the audit: a
kernel on the null stream, say, ignores the caller's stream and is right for a caller who waits for
the device, as the referee does."""

QUICK_BYTES = 16 << 20

_Probe = tuple[str, str, Callable[[], list[CheckResult]]]


class Probes(ValueProbes, TraceProbes):
    """The probes of one submission in one worker."""

    def comparing(self, small: Shape, others: Sequence[Shape], scored: Shape) -> list[_Probe]:
        """Those that only tell something of a submission which is right."""
        unjoined = "timing:late-write" if self.candidate.device == "cpu" else "timing:unjoined"
        found: list[_Probe] = [
            ("same memory, new content", "cache:pointer", lambda: self.same_memory(small)),
            ("freed and recycled", "cache:object", lambda: self.recycled(small)),
            ("one element changed", "cache:sampled", lambda: self.one_element(small)),
            ("shapes in any order", "cache:shape", lambda: self.any_order(small, others)),
            ("dirty memory", "correctness:uninitialised", lambda: self.dirty_memory(small)),
            ("returned output scribbled", "tamper:alias", lambda: self.scribbled(small)),
            ("copied at once and later", unjoined, lambda: self.late_copies(scored)),
        ]
        if self.candidate.device != "cpu":
            found.append(
                ("foreign stream", "correctness:stream", lambda: self.foreign_stream(small))
            )
        return found

    def watching(self, scored: Shape, threads: int) -> list[_Probe]:
        """Those that tell something of any submission."""
        found: list[_Probe] = [
            ("left behind", "process:left-behind", lambda: self.left_behind(threads)),
            ("late write", "timing:late-write", lambda: self.late_write(scored)),
            ("equal content", "cache:content", lambda: self.equal_content(scored)),
            ("inputs unchanged", "tamper:inputs", self.hygiene),
        ]
        if self.candidate.device != "cpu":
            found.append(("context left behind", "process:left-behind", self.context))
        return found


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
        comparing = probes.comparing(small, others, scored)
        many: _Probe = ("many calls", "timing:call-count", lambda: probes.many_calls(small))
        watching = probes.watching(scored, threads)
        if skipped := _control(probes, small):
            found = [not_run(name, mechanism, skipped) for name, mechanism, _ in [*comparing, many]]
            return found + _run(watching, session)
        return _run([*comparing, *watching, many], session)


def _control(probes: Probes, shape: Shape) -> str:
    """Why values cannot be compared; empty when the first undisturbed calls are right."""
    known = probes.known(shape)
    try:
        if probes.candidate.device != "cpu":
            probes.context()
        wrong = probes.wrong(known, probes.sequence(known))
    except SubmissionFailed as failure:
        wrong = str(failure)
    return wrong and f"wrong from the first call on: {wrong}"


def _run(plan: Sequence[_Probe], session: WorkerSession) -> list[CheckResult]:
    found: list[CheckResult] = []
    forged = ""
    for name, mechanism, probe in plan:
        if not session.usable:
            found.append(not_run(name, mechanism, "an earlier probe ended the worker"))
            continue
        try:
            found += probe()
        except SubmissionFailed as failure:
            forged = str(failure) if failure.result is GradeResult.TAMPERED else forged
            told = f"{failure.result}: {failure}"
            found.append(checked(name, mechanism, [told], word=str(failure.result)))
    found.append(checked("unasked frames", "tamper:report", [forged] if forged else []))
    return found


def _scored(candidate: Candidate) -> Shape:
    """The scored shape of most work that is quick to draw and to compare, else the one of least."""
    task = candidate.task
    by_work = sorted(candidate.timed_shapes, key=lambda shape: work(task, shape).bytes)
    quick = [shape for shape in by_work if work(task, shape).bytes <= QUICK_BYTES]
    return quick[-1] if quick else by_work[0]
