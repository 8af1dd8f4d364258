"""Correctness: nominal draws from secret seeds, the task's own cases, then generated ones.

The plan follows from one seed that is drawn before the worker is started, and from the constants of
the source, so a grade can be replayed; cases are made while they are run, because all of them at
once would not fit in memory.
A case that ends its worker is that case's failure: the next one gets a fresh worker, up to
``MAX_WORKERS``; what is left then counts as failed.
"""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from graders import failures
from graders.buffers import CallMemory, room_for
from graders.builds import packed
from graders.candidate import Arrays, Candidate, number
from graders.closeness import Closeness, compare_all
from graders.errors import GraderVoid, SubmissionFailed, readable
from graders.hints import constants
from graders.referee import Answer, WorkerSession
from tasks.case import Case
from tasks.properties import all_cases
from transcripts.records import ShapeCorrectness
from transcripts.words import GradeResult

MAX_WORKERS = 4
NOMINAL_SEEDS = {"quick": 1, "full": 2}


@dataclass(frozen=True)
class CaseRun:
    """What one case came to."""

    name: str
    group: str
    item: str | None
    seed: str
    word: GradeResult
    detail: str = ""
    worst: Closeness | None = None
    hygiene: tuple[str, ...] = ()  # what was wrong beside the values

    @property
    def passed(self) -> bool:
        """True when every compared leaf of every call was right."""
        return self.word is GradeResult.PASS


@dataclass
class Correctness:
    """All case runs, in the order of the plan."""

    runs: list[CaseRun] = field(default_factory=list)
    unmeasurable: list[tuple[str | None, str]] = field(default_factory=list)  # item, why
    log_tail: str = ""

    @property
    def verdict(self) -> tuple[GradeResult, str]:
        """The word of the first failure in the plan; tampering anywhere comes first."""
        failed = [run for run in self.runs if not run.passed]
        failed.sort(key=lambda run: run.word is not GradeResult.TAMPERED)  # stable
        if not failed:
            return GradeResult.PASS, ""
        first = failed[0]
        return first.word, f"{first.group}, {first.name}: {first.detail}"


def plan(candidate: Candidate, seed: str, tier: str) -> Iterator[Case]:
    """Nominal cases of the smoke and scored shapes, then the task's own and the generated ones."""
    hints = constants(candidate.place.submission)  # before a worker could touch anything
    yield from nominal(candidate, seed, NOMINAL_SEEDS[tier])
    kind: Literal["cpu", "cuda"] = "cpu" if candidate.device == "cpu" else "cuda"
    drawn = number(f"{seed}/cases")
    yield from all_cases(candidate.task, candidate.reference, drawn, tier, kind, hints)


def only(cases: Iterable[Case], wanted: str) -> Iterator[Case]:
    """Those of a group, or of a group's shape or item (``GROUP/SHAPE``).

    Raises GraderVoid when the plan has none of them.
    """
    known: dict[str, None] = {}
    found = False
    for case in cases:
        names = (case.group, f"{case.group}/{case.name}", f"{case.group}/{case.item or case.group}")
        known |= dict.fromkeys(names[:2])
        if wanted in names:
            found = True
            yield case
    if not found:
        near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.3) or list(known)[:3]
        raise GraderVoid(f"the plan has no case `{wanted}`; it has for example {', '.join(near)}")


def nominal(candidate: Candidate, seed: str, count: int) -> Iterator[Case]:
    """``count`` draws of every shape."""
    task = candidate.task
    for shape in (*task.smoke, *(() if candidate.rehearsed else task.shapes)):
        for n in range(count):
            text = f"{seed}/nominal/{shape.name}/{n}"
            draw = candidate.draw(shape, text)
            expected = candidate.expected(draw)
            yield Case(shape.name, "nominal", text, draw.params, draw.calls, expected)


class Workers:
    """The workers of a run of cases, one after the other; as few as the submission allows."""

    def __init__(self, candidate: Candidate, found: Correctness) -> None:
        self._candidate, self._found = candidate, found
        self._session: WorkerSession | None = None
        self._started = 0
        self._ended: SubmissionFailed | None = None

    def run(self, case: Case) -> CaseRun:
        """One case; a fresh worker first where there is none. Raises GraderVoid."""
        try:
            if self._session is None:
                self._session = self._fresh()
            return run_case(self._session, self._candidate, case)
        except SubmissionFailed as failure:
            self._ended = failure
            self._started += failure.result is GradeResult.TIMEOUT  # it costs a deadline each time
            if self._session is None:
                self._started = MAX_WORKERS  # it cannot even be imported: once is enough
            return _failed(case, failure)
        finally:
            if self._session is not None and not self._session.usable:
                self.close()

    def _fresh(self) -> WorkerSession:
        if self._started >= MAX_WORKERS and self._ended is not None:
            raise self._ended
        self._started += 1
        return self._candidate.session()

    def keep_caches(self) -> None:
        """What the last worker has compiled serves the later ones."""
        if self._session is not None and self._candidate.device != "cpu":
            self._candidate.built.renew(packed(self._session))

    def close(self) -> None:
        """End the worker; its last words are kept."""
        if self._session is not None:
            self._found.log_tail = self._session.log_tail
            self._session.close()
            self._session = None


def run_cases(candidate: Candidate, cases: Iterable[Case]) -> Correctness:
    """Run the cases in as few workers as the submission allows. Raises GraderVoid."""
    found = Correctness()
    workers = Workers(candidate, found)
    try:
        for case in cases:
            if lacking := set(case.requires).intersection(candidate.entry.absent):
                why = f"the submission does not offer {', '.join(sorted(lacking))}"
                found.unmeasurable.append((case.item, why))
            else:
                found.runs.append(workers.run(case))
        workers.keep_caches()
    finally:
        workers.close()
    return found


def run_case(session: WorkerSession, candidate: Candidate, case: Case) -> CaseRun:
    """One case: its calls in order, each compared as it is answered."""
    limit = candidate.task.limits.call_s
    worst: Closeness | None = None
    hygiene: list[str] = []
    session.setup(case.params, limit)
    for n, (inputs, wanted) in enumerate(zip(case.calls, case.expected, strict=True)):
        if n in case.reset_between:
            session.setup(case.params, limit)
        answer = session.go(CallMemory(inputs, room_for(wanted)), limit, {"watch": True})
        hygiene += unclean(session, candidate, inputs, answer)
        for close in compare_all(candidate.task, case, answer.outputs, wanted, inputs):
            worst = close if worst is None or _worse(close, worst) else worst
    word = worst.word if worst is not None else GradeResult.PASS
    detail = f"{worst.leaf}: {worst.detail}" if worst is not None and worst.detail else ""
    if hygiene and word is GradeResult.PASS:
        word, detail = GradeResult.WRONG, hygiene[0]
    return CaseRun(case.name, case.group, case.item, case.seed, word, detail, worst, tuple(hygiene))


def unclean(
    session: WorkerSession, candidate: Candidate, inputs: Arrays, answer: Answer
) -> list[str]:
    """What a call did beside computing: changed inputs, no plain arrays, aliases of inputs."""
    allowed = candidate.task.interface.mutable_inputs
    found = [
        f"input `{name}` was changed"
        for name in session.changed_inputs(inputs)
        if name not in allowed
    ]
    for leaf in answer.leaves:
        kind = failures.text_of(leaf.get("type"))[:100]
        if kind not in PLAIN_TYPES:
            found.append(readable(f"output `{leaf['name']}` is a {kind}"))
        if leaf.get("aliases"):
            found.append(readable(f"output `{leaf['name']}` shares memory with an input"))
        raw = candidate.task.interface.raw_outputs.get(str(leaf["name"]))
        if raw and kind == "torch.Tensor" and leaf.get("holds") not in TORCH_NAMES[raw]:
            found.append(readable(f"output `{leaf['name']}` is no {raw}: {leaf.get('holds')}"))
    return found


PLAIN_TYPES = frozenset({"numpy.ndarray", "torch.Tensor"})
TORCH_NAMES = {
    "bfloat16": ("torch.bfloat16",),
    "float8_e4m3": ("torch.float8_e4m3fn",),
    "float8_e5m2": ("torch.float8_e5m2",),
}


def summarise(runs: Iterable[CaseRun]) -> tuple[ShapeCorrectness, ...]:
    """Worst result of each (name, group); property cases are one line a group and item."""
    lines: dict[tuple[str, str], list[CaseRun]] = {}
    for run in runs:
        shape = run.name if run.group == "nominal" else run.item or run.group
        lines.setdefault((shape, run.group), []).append(run)
    return tuple(_line(shape, group, members) for (shape, group), members in lines.items())


def _line(shape: str, group: str, runs: list[CaseRun]) -> ShapeCorrectness:
    worst = runs[0]
    for run in runs[1:]:
        if (not run.passed, _size(run.worst)) > (not worst.passed, _size(worst.worst)):
            worst = run
    close = worst.worst
    named = "" if worst.name == shape or not worst.detail else f"{worst.name}: "
    return ShapeCorrectness(
        shape=shape,
        group=group,
        passed=all(run.passed for run in runs),
        runs=len(runs),
        failures=sum(not run.passed for run in runs),
        max_abs_error=close.max_abs_error if close else None,
        max_rel_error=close.max_rel_error if close else None,
        rms_ratio=close.rms_ratio if close else None,
        bad_elements=close.bad_elements if close else 0,
        worst_leaf=close.leaf if close else None,
        worst_index=close.worst_index if close else None,
        seed=worst.seed,
        detail=named + worst.detail,
    )


def _failed(case: Case, failure: SubmissionFailed) -> CaseRun:
    return CaseRun(case.name, case.group, case.item, case.seed, failure.result, str(failure))


def _worse(one: Closeness, other: Closeness) -> bool:
    return (not one.passed, _size(one)) > (not other.passed, _size(other))


def _size(close: Closeness | None) -> float:
    if close is None:
        return -1.0
    return close.bad_elements + (close.rms_ratio or 0.0)
