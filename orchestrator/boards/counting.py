"""Which of an attempt's grades counts: the latest valid correctness with the latest valid timing.

All grades given here are isolated, of one attempt, task version, scoring version and hardware.

- A failure stands until a later pass of at least its own tier: a quick look can take a cell down,
  but only as thorough a look as the one that failed brings it up again.
- Otherwise a full pass counts before a quick one, and of these the latest.
- A pass without timings (a regrade of correctness alone) keeps those of the latest timed pass. The
  result is marked for the weaker of the two: quick, or not isolated.
- What was not measured (void, unsupported) counts only where there is nothing else.
"""

from collections.abc import Sequence

from transcripts.records import Grade
from transcripts.words import GradeResult

NOT_MEASURED = frozenset({GradeResult.VOID, GradeResult.UNSUPPORTED})


def counting(grades: Sequence[Grade]) -> Grade | None:
    """The grade to read, put together from two where one has no timings; None without any."""
    measured = [grade for grade in grades if grade.result not in NOT_MEASURED]
    if not measured:
        return max(grades, key=_age, default=None)
    standing = [grade for grade in measured if _stands(grade, measured)]
    if standing:
        return max(standing, key=_age)
    passes = [grade for grade in measured if grade.result is GradeResult.PASS]
    newest = max(passes, key=_thorough_then_new)
    timed = max((g for g in passes if g.timings), key=_thorough_then_new, default=None)
    return _with_timings(newest, timed) if timed and not newest.timings else newest


def _stands(failure: Grade, grades: Sequence[Grade]) -> bool:
    """True for a failure that no later pass of at least its tier has answered."""
    return failure.result is not GradeResult.PASS and not any(
        grade.result is GradeResult.PASS
        and _age(grade) > _age(failure)
        and (grade.tier == "full" or failure.tier == "quick")
        for grade in grades
    )


def _with_timings(grade: Grade, timed: Grade) -> Grade:
    """The correctness of one grade with the figures, and the checks of timing, of another."""
    figures = {item.item: item for item in timed.items if item.measurable}
    items = (item if item.measurable else figures.get(item.item, item) for item in grade.items)
    own = {check.check for check in grade.checks}
    phases = {ledger.phase for ledger in grade.ledgers}
    weaker = {"tier": "quick"} if timed.tier == "quick" else {}
    weaker |= {"isolation": "process"} if timed.isolation == "process" else {}
    return grade.model_copy(
        update={
            "timings": timed.timings,
            "timing_digest": timed.timing_digest,
            "device": timed.device,
            "lease": timed.lease,
            "items": tuple(items),
            "checks": (*grade.checks, *(c for c in timed.checks if c.check not in own)),
            "ledgers": (*grade.ledgers, *(one for one in timed.ledgers if one.phase not in phases)),
            **weaker,
        }
    )


def _thorough_then_new(grade: Grade) -> tuple[bool, str]:
    return grade.tier == "full", _age(grade)


def _age(grade: Grade) -> str:
    return grade.grade_id  # ids sort by time
