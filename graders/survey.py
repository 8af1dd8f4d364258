"""Ledgers of a grade on a GPU: which shapes and phases are profiled, and what follows from them.

- *check*: a fresh worker, profiled at its first calls, at each scored shape (``quick``: at the one
  of most work that is quick to draw);
- *stress*: in the same worker, stress cases whose inputs have the dtypes and sizes of such a shape;
- *timed*: another worker, after as many calls of the shape as timing warms up with, and a random
  number more; its ledgers decide the language.

No language is refused because there is no ledger: where the profiler is refused, or breaks what it
profiles, the source decides as on a CPU, and a check says why. It was not run where a worker of our
own gets no ledger either. Where ours gets one it has failed, and a task that counts launches takes
them for too many: who breaks the count does not pass for want of one.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from graders.buffers import CallMemory
from graders.candidate import Arrays, Candidate, Draw, number
from graders.decoys import CHECK, MECHANISM, noop_kernels
from graders.errors import GraderVoid, SubmissionFailed
from graders.kernel_names import AUTHORED
from graders.ledger import (
    LAUNCHES,
    WARM,
    NoLedger,
    agreement,
    authored_by,
    decide,
    launches,
    main_kernel,
    shares,
    take,
)
from graders.pacing.own_worker import LIMIT_S, own_session
from graders.roofline import work
from tasks.loader import load_cases
from tasks.spec import Shape, Task
from transcripts.records import CheckResult, Ledger
from transcripts.words import GradeResult

QUICK_BYTES = 256 << 20
CALLS_BEFORE = (12, 24)  # sequences before a `timed` profile
COPIED = 8 << 30  # bytes of inputs that may be copied to the device for them
MOST_STRESS = 3


@dataclass
class Survey:
    """What the profiles of a submission came to."""

    language: str
    ledgers: list[Ledger] = field(default_factory=list)
    checks: list[CheckResult] = field(default_factory=list)


def survey(candidate: Candidate, seed: str, tier: str, spoken: str) -> Survey:
    """Ledgers, their agreement, the language, and whether the kernels matter.

    ``spoken`` is the language by the source. Raises SubmissionFailed for forged profiles only, and
    GraderVoid.
    """
    found = Survey(spoken)
    if candidate.device == "cpu":
        return found
    shapes = _shapes(candidate, tier)
    try:
        found.ledgers += _first_calls(candidate, seed, shapes)
        found.ledgers += _later_calls(candidate, seed, shapes)
    except NoLedger as error:
        return unseen(candidate.task, found, str(error), is_profiled_here(candidate))
    except SubmissionFailed as failure:
        if failure.result is GradeResult.TAMPERED:
            raise
        why = f"the profiled calls failed: {failure}"
        return unseen(candidate.task, found, why, is_profiled_here(candidate))
    return conclude(candidate, seed, shapes, found)


def unseen(task: Task, found: Survey, why: str, ours: bool) -> Survey:
    """A survey without ledgers; ``ours``: a worker of our own gets one on this machine."""
    told = f"{why} (a worker of our own can be profiled here)" if ours else why
    missing = _none(told).model_copy(update={"passed": False if ours else None})
    found.checks.append(missing)
    if task.most_launches is not None:
        found.checks.append(missing.model_copy(update={"check": LAUNCHES, "mechanism": None}))
    return found


def is_profiled_here(candidate: Candidate) -> bool:
    """Whether a worker of our own gets a ledger on this device. Raises GraderVoid."""
    params = {"device": "cuda", "outputs": [], "spin": 1, "wait": 0}
    memory = CallMemory({}, 1 << 12)
    with own_session(candidate) as session:
        try:
            frame = {"calls": [[]], "warm": 1, "repeat": 1}
            answer = session.profile(memory, params, frame, LIMIT_S)
        except SubmissionFailed as error:
            raise GraderVoid(f"our own worker failed: {error}") from error
    return not answer.get("refused")


def conclude(candidate: Candidate, seed: str, shapes: list[Shape], found: Survey) -> Survey:
    """Add to a survey that has ledgers what follows from them. Raises GraderVoid."""
    timed = [ledger for ledger in found.ledgers if ledger.phase == "timed"]
    authored = authored_by(candidate)
    found.checks.append(agreement(found.ledgers))
    if (allowed := candidate.task.most_launches) is not None:
        found.checks.append(launches(found.ledgers, allowed))
    found.language = decide(timed, authored, found.language) or found.language
    shown = [ledger for ledger in timed if main_kernel(ledger) is not None]
    if found.language not in AUTHORED:
        return found
    if not shown:
        found.checks.append(_none("kernels of unknown names do most of the work", CHECK, MECHANISM))
        return found
    most = max(shown, key=lambda ledger: sum(shares(ledger).get(kind, 0) for kind in AUTHORED))
    shape = next(shape for shape in shapes if shape.name == most.shape)
    found.checks.append(noop_kernels(candidate, seed, most, shape))
    if found.checks[-1].passed is False:
        means = shares(most)
        found.language = "library" if means.get("library", 0) > means.get("eager", 0) else "eager"
    return found


def _shapes(candidate: Candidate, tier: str) -> list[Shape]:
    task = candidate.task
    by_work = sorted(task.shapes, key=lambda shape: work(task, shape).bytes)
    if tier == "full":
        return by_work
    quick = [shape for shape in by_work if work(task, shape).bytes <= QUICK_BYTES]
    return quick[-1:] or by_work[:1]


def _first_calls(candidate: Candidate, seed: str, shapes: list[Shape]) -> Iterator[Ledger]:
    with candidate.session() as session:
        names = {}
        for shape in shapes:
            draw = candidate.draw(shape, f"{seed}/ledger/check/{shape.name}")
            names[_form(draw.calls[0])] = shape.name
            yield take(session, candidate, draw, "check", shape.name)
        for draw in _stress(candidate, seed, frozenset(names)):
            yield take(session, candidate, draw, "stress", names[_form(draw.calls[0])])


def _stress(candidate: Candidate, seed: str, forms: frozenset[str]) -> Iterator[Draw]:
    """Stress cases of the same form as a profiled shape, the first few of them."""
    left = MOST_STRESS
    for case in load_cases(candidate.task, "cuda")(number(f"{seed}/ledger"), "quick"):
        if left and case.group.startswith("stress") and _form(case.calls[0]) in forms:
            left -= 1
            yield Draw(case.params, case.calls)
        if not left:
            return


def _later_calls(candidate: Candidate, seed: str, shapes: list[Shape]) -> Iterator[Ledger]:
    with candidate.session() as session:
        for shape in shapes:
            draw = candidate.draw(shape, f"{seed}/ledger/timed/{shape.name}")
            size = sum(array.nbytes for call in draw.calls for array in call.values())
            rng = random.Random(f"{seed}/ledger/{shape.name}")  # noqa: S311
            warm = min(rng.randint(*CALLS_BEFORE), max(COPIED // max(size, 1), WARM + 1))
            yield take(session, candidate, draw, "timed", shape.name, warm)


def _form(inputs: Arrays) -> str:
    return ", ".join(f"{name} {a.dtype} {a.shape}" for name, a in sorted(inputs.items()))


def _none(
    why: str, check: str = "kernels by phase", mechanism: str = "ledger:phases"
) -> CheckResult:
    return CheckResult(check=check, passed=None, mechanism=mechanism, detail=why[:1000])
