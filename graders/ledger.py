"""The kernel ledger: what ran on the GPU in a call, how often, and whose work it was.

The worker profiles its own process (``graders.worker.profiling``), so a ledger is a claim: lengths
and types are checked here and nothing else is believed. It gains weight from what it has to agree
with: ledgers of other phases (``agreement``), the submission's source (``graders.kernel_names``),
the outputs without its kernels (``graders.decoys``), and the referee's own clock.

The language of a grade: of the GPU time that is not copying, authored kernels must have at least
half; then it is the authored kind of the largest share. Else it is ``library`` or ``eager``,
whichever is larger. Where kernels of unknown names would tip this, the source decides.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from graders.buffers import CallMemory
from graders.candidate import Candidate, Draw
from graders.entry import Entry
from graders.errors import GraderVoid, SubmissionFailed, readable
from graders.kernel_names import AUTHORED, Authored, Kind, authored_of, classify, unqualified
from graders.referee import WorkerSession
from graders.sources import closure, native_texts
from transcripts.records import CheckResult, KernelLine, Ledger
from transcripts.words import GradeResult

Phase = Literal["check", "stress", "timed"]
MAX_CALLS = 8  # of a sequence
WARM, REPEAT = 2, 3  # sequences before the trace (compilers, autotuners), and traced
HALF = 0.5
LAUNCH_SLACK = 0.1  # relative, and at least half a launch: kernels may depend on values
MARGIN = 0.2  # of GPU time, by which a share must differ before a change of kind is one
OTHERS = "(other kernels)"
LAUNCHES = "launches a call"
_LINES, _NAME, _MOST = 200, 300, 1 << 53
_WHAT = ("kernel", "memcpy", "memset")


class NoLedger(Exception):
    """The worker's profiler gives nothing: no GPU, or CUPTI is missing or not permitted."""


@dataclass(frozen=True)
class ProfiledLine:
    """One line of the worker's answer, types and bounds checked: a claim."""

    name: str
    what: str
    launches: int
    ns: int
    graph: bool


def take(
    session: WorkerSession,
    candidate: Candidate,
    draw: Draw,
    phase: Phase,
    shape: str,
    warm: int = WARM,
) -> Ledger:
    """Profile a sequence of calls, ``warm`` times run before. Raises NoLedger, SubmissionFailed."""
    calls = [dict(call) for call in draw.calls[:MAX_CALLS]]
    arrays = {f"{n}/{name}": array for n, call in enumerate(calls) for name, array in call.items()}
    memory = CallMemory(arrays, 1 << 12)
    leaves = [{**leaf, "name": leaf["name"].partition("/")[2]} for leaf in memory.placed.leaves]
    ends = [sum(map(len, calls[: n + 1])) for n in range(len(calls))]
    grouped = [leaves[end - len(call) : end] for end, call in zip(ends, calls, strict=True)]
    frame = {"calls": grouped, "warm": warm, "repeat": REPEAT}
    seconds = candidate.task.limits.call_s * (warm + REPEAT) * len(calls)
    answer = session.profile(memory, draw.params, frame, seconds)
    traced = REPEAT * max(len(calls) - 1, 1)
    return ledger_of(claimed(answer, traced), traced, authored_by(candidate), phase, shape)


def authored_by(candidate: Candidate) -> Authored:
    """The kernels that a submission's source defines."""
    return _authored_in(candidate.place.submission, candidate.entry.file)


@lru_cache(maxsize=4)
def _authored_in(submission: Path, file: str) -> Authored:
    """Of the read-only copy that one candidate has to itself."""
    return authored_of(closure(submission, Entry(file, {})), native_texts(submission))


def claimed(answer: Mapping[str, Any], calls: int) -> list[ProfiledLine]:
    """The lines of an answer. Raises NoLedger, and SubmissionFailed for what no worker says."""
    if refused := answer.get("refused"):
        raise NoLedger(readable(str(refused)[:_NAME]))
    lines, rest = answer.get("lines"), answer.get("rest")
    if type(lines) is not list or len(lines) > _LINES or answer.get("calls") != calls:
        raise _forged("no list of kernels")
    if type(rest) is not list or len(rest) != 2 or not all(map(_is_count, rest)):
        raise _forged("no count of other kernels")
    found = [_line(line) for line in lines]
    return [*found, ProfiledLine(OTHERS, "kernel", rest[0], rest[1], False)] if rest[0] else found


def _line(line: Any) -> ProfiledLine:
    if not isinstance(line, dict) or set(line) != {"name", "what", "launches", "ns", "graph"}:
        raise _forged("a line of other fields")
    name, what, graph = line["name"], line["what"], line["graph"]
    is_text = isinstance(name, str) and len(name) <= _NAME
    if not is_text or what not in _WHAT or type(graph) is not bool:
        raise _forged("a line of other types")
    if not _is_count(line["launches"]) or not _is_count(line["ns"]) or not line["launches"]:
        raise _forged("a line whose counts are none")
    return ProfiledLine(readable(name), what, line["launches"], line["ns"], graph)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _forged(how: str) -> SubmissionFailed:
    return SubmissionFailed(GradeResult.TAMPERED, f"a forged profile: {how}")


def ledger_of(
    lines: Sequence[ProfiledLine], calls: int, authored: Authored, phase: Phase, shape: str
) -> Ledger:
    """The record of a profile of ``calls`` calls."""
    total = sum(line.ns for line in lines)
    kernels = tuple(
        KernelLine(
            name=line.name,
            kind=classify(line.name, line.what, authored).kind,
            launches=line.launches / calls,
            gpu_share=line.ns / total if total else 0.0,
            in_graph=line.graph,
        )
        for line in lines
    )
    launches = sum(line.launches for line in lines) / calls
    bare = Ledger(phase=phase, shape=shape, launches=launches, kernels=kernels)
    return bare.model_copy(update={"language": decide([bare], authored, None)})


def shares(ledger: Ledger) -> dict[Kind, float]:
    """Share of each kind in the GPU time that is not copying; empty when there is none."""
    found: Counter[Kind] = Counter()
    for line in ledger.kernels:
        if line.kind != "memory":
            found[line.kind] += line.gpu_share  # type: ignore[assignment]
    total = sum(found.values())
    return {kind: share / total for kind, share in found.items()} if total else {}


def decide(ledgers: Sequence[Ledger], authored: Authored, spoken: str | None) -> str | None:
    """The language of what ran, each ledger counting alike; see the module.

    ``spoken`` is what the source says, and the answer where names that nobody knows would tip it.
    Where nothing but copies ran on the GPU, kernels in the source make no language of it.
    """
    means: Counter[str] = Counter()
    for ledger in ledgers:
        for kind, share in shares(ledger).items():
            means[kind] += share / len(ledgers)  # type: ignore[assignment]
    ours = {kind: means[kind] for kind in AUTHORED}
    share = sum(ours.values())
    if share and share >= HALF * sum(means.values()):
        return max(AUTHORED, key=lambda kind: ours[kind])
    if means and share + _unknown(ledgers, authored) >= HALF:
        return spoken
    if not means and spoken is not None and spoken not in AUTHORED:
        return spoken
    return "library" if means["library"] > means["eager"] else "eager"


def _unknown(ledgers: Sequence[Ledger], authored: Authored) -> float:
    """Mean share of kernels whose names tell nothing."""
    found = 0.0
    for ledger in ledgers:
        all_ = sum(line.gpu_share for line in ledger.kernels if line.kind != "memory")
        for line in ledger.kernels:
            if line.kind == "library" and not classify(line.name, "kernel", authored).sure:
                found += line.gpu_share / all_ / len(ledgers) if all_ else 0.0
    return found


def agreement(ledgers: Iterable[Ledger]) -> CheckResult:
    """Whether the phases of each shape show the same work; not run where there is one phase only.

    It fails when the authored kernel that does most of the work in one phase is absent in another,
    when another kind does most of the work, or when the kernels launched in a call differ.
    """
    by_shape: dict[str, list[Ledger]] = {}
    for ledger in ledgers:
        by_shape.setdefault(ledger.shape, []).append(ledger)
    told: list[str] = []
    compared = False
    for shape, members in by_shape.items():
        for other in members[1:]:
            if other.phase != members[0].phase:
                compared = True
                told += [f"{shape}: {line}" for line in _differences(members[0], other)]
    evidence: dict[str, JsonValue] = {
        shape: [_summary(ledger) for ledger in members] for shape, members in by_shape.items()
    }
    return CheckResult(
        check="kernels by phase",
        passed=not told if compared else None,
        mechanism="ledger:phases",
        detail="; ".join(told)[:1000] or ("" if compared else "only one phase was profiled"),
        evidence=evidence,
    )


def launches(ledgers: Sequence[Ledger], most: int) -> CheckResult:
    """Whether each profiled call takes ``most`` launches at the most.

    Kernels, copies, memsets and every node of a graph count alike: what one launch was asked for is
    not done by a graph of many. A profiler that misses a launch tells fewer, never more.
    """
    above = [ledger for ledger in ledgers if ledger.launches > most]
    told = [
        f"{ledger.shape}, {ledger.phase}: {ledger.launches:g} launches a call "
        f"({', '.join(line.name[:60] for line in ledger.kernels[:3])})"
        for ledger in above
    ]
    found: dict[str, JsonValue] = {
        f"{ledger.shape}, {ledger.phase}": round(ledger.launches, 3) for ledger in ledgers
    }
    return CheckResult(
        check=LAUNCHES, passed=not told, detail="; ".join(told)[:1000], evidence=found
    )


def refuse_launches(checks: Iterable[CheckResult], most: int | None) -> None:
    """Raises SubmissionFailed, ``forbidden``, where `launches` has counted more than ``most``.

    Raises GraderVoid where they cannot be counted on this machine.
    """
    for check in checks:
        if check.check == LAUNCHES and check.passed is None:
            raise GraderVoid(f"launches cannot be counted on this machine: {check.detail}")
        if check.check == LAUNCHES and check.passed is False:
            told = f"more launches a call than the {most} that the task allows: {check.detail}"
            raise SubmissionFailed(GradeResult.FORBIDDEN, told)


def _differences(one: Ledger, other: Ledger) -> Iterable[str]:
    for here, there in ((one, other), (other, one)):
        main = main_kernel(here)
        names = {unqualified(line.name) for line in there.kernels}
        if main is not None and unqualified(main.name) not in names:
            yield f"`{main.name[:100]}` does most of {here.phase}, and nothing of {there.phase}"
    first, second = shares(one), shares(other)
    for kind in dict.fromkeys([*first, *second]):
        a, b = first.get(kind, 0.0), second.get(kind, 0.0)
        if (a > HALF) != (b > HALF) and abs(a - b) > MARGIN:
            phases = f"in {one.phase}, {b:.0%} in {other.phase}"
            yield f"`{kind}` has {a:.0%} of the GPU time {phases}"
    a, b = _kernel_launches(one), _kernel_launches(other)
    if abs(a - b) > max(HALF, LAUNCH_SLACK * a):
        yield f"{a:g} kernels a call in {one.phase}, {b:g} in {other.phase}"


def _kernel_launches(ledger: Ledger) -> float:
    """Without copies: who captures a graph after a few calls copies its inputs from then on."""
    return sum(line.launches for line in ledger.kernels if line.kind != "memory")


def main_kernel(ledger: Ledger) -> KernelLine | None:
    """The authored kernel of most GPU time, where authored work is most of it."""
    ours = [line for line in ledger.kernels if line.kind in AUTHORED]
    if not ours or sum(shares(ledger).get(kind, 0.0) for kind in AUTHORED) < HALF:
        return None
    return max(ours, key=lambda line: line.gpu_share)


def _summary(ledger: Ledger) -> dict[str, JsonValue]:
    main = max(ledger.kernels, key=lambda line: line.gpu_share, default=None)
    return {
        "phase": ledger.phase,
        "launches": round(ledger.launches, 3),
        "shares": {kind: round(share, 4) for kind, share in shares(ledger).items()},
        "main": main.name[:100] if main else "",
    }
