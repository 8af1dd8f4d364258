"""Grades in words."""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from orchestrator.device_words import device_lines
from transcripts.records import Grade
from transcripts.words import GradeResult


def summary(grades: Sequence[Grade], explain: bool) -> str:
    """A paragraph a grade; everything that was measured with ``explain``."""
    if not grades:
        return "Nothing to grade: every hand-in has a valid grade (say --again to repeat)."
    return "\n\n".join("\n".join(_lines(grade, explain)) for grade in grades)


def overview(named: Sequence[tuple[str, Grade]]) -> str:
    """A line a grade, in the order in which they were made, and how many of each word."""
    width = max((len(name) for name, _ in named), default=0)
    lines = [f"{name:<{width}}  {_figures(grade)}" for name, grade in named]
    counts = Counter(str(grade.result) for _, grade in named)
    told = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    return "\n".join([*lines, f"{len(named)} graded: {told}"])


def _figures(grade: Grade) -> str:
    if grade.result is not GradeResult.PASS:
        return f"{grade.result}: {grade.message}"[:200]
    times = ", ".join(f"{timing.shape} {timing.median_ms:.4g} ms" for timing in grade.timings)
    return f"{grade.result}: {times or grade.message}"


def _lines(grade: Grade, explain: bool) -> Iterable[str]:
    void = f" ({grade.reason})" if grade.reason else ""
    yield f"{grade.task}: {grade.result}{void}  [{grade.tier}, {grade.mode}, {grade.isolation}]"
    if grade.message:
        yield f"  {grade.message}"
    for timing in grade.timings:
        certified = "certified" if timing.certified else "not certified"
        yield (
            f"  {timing.shape}: {timing.median_ms:.4g} ms "
            f"[{timing.ci_low_ms:.4g}, {timing.ci_high_ms:.4g}] over {timing.calls} calls, "
            f"{timing.method}, {certified}"
        )
    for item in grade.items:
        yield f"  item {item.item}: {_item(item.measurable, item.passed, item.total, item.value)}"
    if explain:
        yield from _details(grade)
    yield f"  again: {grade.reproduce}"


def _item(measurable: bool, passed: int, total: int, value: float | None) -> str:
    if not measurable:
        return "not measurable"
    figure = "" if value is None else f" (value {value:.4g})"
    return f"{passed}/{total}{figure}"


def _details(grade: Grade) -> Iterable[str]:
    for row in grade.correctness:
        word = "ok" if row.passed else "FAIL"
        worst = "" if row.max_abs_error is None else f", max abs {row.max_abs_error:.3g}"
        ratio = "" if row.rms_ratio is None else f", rms ratio {row.rms_ratio:.3g}"
        yield (
            f"  {word} {row.group} {row.shape}: {row.runs - row.failures}/{row.runs}{worst}{ratio}"
            f"{', seed ' + row.seed if row.seed else ''}{' - ' + row.detail if row.detail else ''}"
        )
        if not row.passed and row.group != "timed":
            yield f"    again: {_only(grade, f'{row.group}/{row.shape}')}"
    for check in grade.checks:
        word = {True: "ok", False: "FAIL", None: "not run"}[check.passed]
        yield f"  {word} probe {check.check}{' - ' + check.detail if check.detail else ''}"
        if check.passed is False:
            untimed = "" if _is_timed(check.mechanism) else " --correctness-only"
            yield f"    again: {grade.reproduce}{untimed}"
    yield from device_lines(grade)
    if grade.log_tail:
        yield f"  the submission printed: {grade.log_tail[-500:]!r}"


def _only(grade: Grade, cases: str) -> str:
    """The line that replays some cases of a grade alone."""
    words = shlex.split(grade.reproduce)
    return shlex.join(words if "--only" in words else [*words, "--only", cases])


def _is_timed(mechanism: str | None) -> bool:
    return mechanism is not None and mechanism.startswith("timing:")
