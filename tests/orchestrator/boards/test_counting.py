"""The latest valid correctness with the latest valid timing."""

import pytest

from orchestrator.boards.counting import counting
from transcripts.records import CheckResult
from transcripts.words import GradeResult

PASS, WRONG, VOID = GradeResult.PASS, GradeResult.WRONG, GradeResult.VOID


@pytest.fixture
def graded(make):
    """Grades from words: (result, tier, timed), oldest first."""
    tried = make.attempt(1, make.entrant())

    def build(*rows):
        grades = []
        for number, (result, tier, timed) in enumerate(rows, 1):
            given = make.grade(tried, number, result=result, tier=tier, ms=10.0 * number)
            grades.append(given if timed else given.model_copy(update={"timings": ()}))
        return grades

    return build


@pytest.mark.parametrize("tier", ["quick", "full"])
def test_a_correctness_regrade_that_fails_takes_the_figures_down(graded, tier):
    timed, failed = graded((PASS, "full", True), (WRONG, tier, False))
    assert counting([timed, failed]) == failed


def test_a_correctness_regrade_that_passes_keeps_the_earlier_timing(graded):
    timed, passed = graded((PASS, "full", True), (PASS, "full", False))
    combined = counting([timed, passed])
    assert combined.grade_id == passed.grade_id
    assert combined.timings == timed.timings


def test_a_quick_pass_answers_a_quick_failure_but_not_a_full_one(graded):
    full, failed, passed = graded((PASS, "full", True), (WRONG, "quick", False), (PASS, "quick", 1))
    assert counting([full, failed, passed]) == full
    failed, passed = graded((WRONG, "full", False), (PASS, "quick", True))
    assert counting([failed, passed]) == failed


def test_timings_of_a_failed_grade_are_never_taken(graded):
    (failed, passed) = graded((WRONG, "full", True), (PASS, "full", False))
    timings = graded((PASS, "full", True))[0].timings
    failed = failed.model_copy(update={"timings": timings})
    assert counting([failed, passed]).timings == ()


def test_a_void_grade_counts_only_where_there_is_nothing_else(graded):
    passed, void = graded((PASS, "full", True), (VOID, "full", False))
    assert counting([passed, void]) == passed
    assert counting([void]) == void
    assert counting([]) is None


def test_a_combination_is_marked_for_the_weaker_of_the_two(graded):
    timed, passed = graded((PASS, "quick", True), (PASS, "full", False))
    timed = timed.model_copy(update={"isolation": "process"})
    combined = counting([timed, passed])
    assert (combined.tier, combined.isolation) == ("quick", "process")


def test_checks_of_the_timing_come_with_it(graded):
    timed, passed = graded((PASS, "full", True), (PASS, "full", False))
    slow = CheckResult(check="proven floor", passed=False, mechanism="timing:floor")
    timed = timed.model_copy(update={"checks": (slow, CheckResult(check="poison", passed=False))})
    fresh = CheckResult(check="poison", passed=True)
    combined = counting([timed, passed.model_copy(update={"checks": (fresh,)})])
    assert combined.checks == (fresh, slow)
