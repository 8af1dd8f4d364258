"""Which grade and which audit count for an attempt."""

from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.boards.evidence import AttemptEvidence, hardware_of, stand
from orchestrator.boards.states import BoardState
from transcripts.words import End, GradeResult, Verdict


@pytest.fixture
def tried(make):
    return make.attempt(1, make.entrant())


def test_a_clean_pass_is_valid(make, tried):
    assert stand(make.evidence(tried), make.terms).state is BoardState.VALID


def test_the_latest_isolated_grade_counts(make, tried):
    grades = [
        make.grade(tried, 1),
        make.grade(tried, 3, result=GradeResult.WRONG),
        make.grade(tried, 2),
    ]
    standing = stand(make.evidence(tried, grades=grades), make.terms)
    assert standing.grade == grades[1]
    assert standing.state is BoardState.FAILED


def test_an_in_run_grade_never_counts_and_is_shown_beside(make, tried):
    in_run = make.grade(tried, 9, mode="in_run", attempt_seal=None)
    standing = stand(make.evidence(tried, grades=[in_run]), make.terms)
    assert standing.grade is None
    assert standing.in_run == in_run
    assert standing.state is BoardState.UNGRADED
    assert "run `grade`" in standing.detail
    assert not standing.problems


def test_a_void_grade_does_not_hide_an_earlier_measurement(make, tried):
    measured = make.grade(tried, 1)
    void = make.grade(tried, 2, result=GradeResult.VOID, reason="contention")
    assert stand(make.evidence(tried, grades=[measured, void]), make.terms).grade == measured


def test_only_void_grades_leave_it_pending_with_the_reason(make, tried):
    void = make.grade(tried, 2, result=GradeResult.VOID, reason="contention")
    standing = stand(make.evidence(tried, grades=[void]), make.terms)
    assert standing.state is BoardState.PENDING
    assert "contention" in standing.detail


def test_a_quick_grade_does_not_replace_a_full_one(make, tried):
    full, quick = make.grade(tried, 1), make.grade(tried, 2, tier="quick")
    assert stand(make.evidence(tried, grades=[full, quick]), make.terms).grade == full


def test_other_hardware_does_not_count_and_is_named(make, tried):
    elsewhere = make.grade(tried, hardware="cpu:Other")
    standing = stand(make.evidence(tried, grades=[elsewhere]), make.terms)
    assert standing.state is BoardState.UNGRADED
    assert standing.detail == "graded on cpu:Other only"


@pytest.mark.parametrize("changes", [{"scoring_version": 2}, {"task_digest": "f" * 64}])
def test_another_version_of_the_task_does_not_count(make, tried, changes):
    standing = stand(make.evidence(tried, grades=[make.grade(tried, **changes)]), make.terms)
    assert standing.grade is None
    assert "another version" in standing.detail


@pytest.mark.parametrize("changes", [{"attempt_seal": "other"}, {"attempt_id": "other"}])
def test_a_foreign_grade_is_a_problem_and_never_used(make, tried, changes):
    foreign = make.grade(tried, 1, **changes)
    standing = stand(make.evidence(tried, grades=[foreign]), make.terms)
    assert standing.grade is None
    assert any(foreign.grade_id in text for text in standing.problems)


@pytest.mark.parametrize("verdict", [Verdict.CLEAN, Verdict.REWARD_HACK])
def test_a_foreign_audit_is_a_problem_and_never_used(make, tried, verdict):
    foreign = make.audit(tried, 1, attempt_seal="other", verdict=verdict)
    standing = stand(make.evidence(tried, audits=[foreign]), make.terms)
    assert standing.state is BoardState.UNAUDITED
    assert any(foreign.audit_id in text for text in standing.problems)


def test_what_the_archive_found_broken_is_a_problem_of_the_attempt(make, tried):
    standing = stand(make.evidence(tried, problems=("grades/x.json is broken",)), make.terms)
    assert "grades/x.json is broken" in standing.problems


def test_the_latest_concluded_audit_counts(make, tried):
    audits = [
        make.audit(tried, 1, verdict=Verdict.REWARD_HACK),
        make.audit(tried, 2, verdict=Verdict.CLEAN),
        make.audit(tried, 3, verdict=Verdict.UNAUDITED),
    ]
    assert stand(make.evidence(tried, audits=audits), make.terms).audit == audits[1]


def test_a_flag_is_shown_with_its_verdict_and_summary(make, tried):
    flag = make.audit(tried, verdict=Verdict.REWARD_HACK, summary="returns an earlier output")
    standing = stand(make.evidence(tried, audits=[flag]), make.terms)
    assert standing.state is BoardState.FLAGGED
    assert standing.detail == "reward_hack: returns an earlier output"


def test_a_live_attempt_is_pending_whatever_lies_beside_it(make):
    live = make.attempt(1, make.entrant(), end=None)
    standing = stand(replace(make.evidence(live), seal=None), make.terms)
    assert standing.state is BoardState.PENDING
    assert "not finished" in standing.why


def test_an_attempt_whose_seal_does_not_hold_counts_nothing(make, tried):
    broken = AttemptEvidence(tried, seal=None, problems=("attempt.json was changed",))
    standing = stand(broken, make.terms)
    assert standing.state is BoardState.PENDING
    assert "seal does not hold" in standing.why
    assert standing.problems == broken.problems


def test_infrastructure_ends_stay_pending_with_their_message(make):
    cut = make.attempt(1, make.entrant(), end=End.PROVIDER_FAULT)
    standing = stand(make.evidence(cut, grades=[], audits=[]), make.terms)
    assert standing.state is BoardState.PENDING
    assert standing.detail.startswith("provider_fault")


def test_grades_and_audits_after_until_do_not_count_and_a_late_flag_is_told(make, tried):
    terms = replace(make.terms, until=make.start + timedelta(hours=2, minutes=30))
    late_grade = make.grade(tried, 2, result=GradeResult.WRONG)
    late_grade = late_grade.model_copy(update={"started_at": make.start + timedelta(days=1)})
    late_flag = make.audit(tried, 90, verdict=Verdict.REWARD_HACK)
    given = make.evidence(
        tried, grades=[make.grade(tried), late_grade], audits=[make.audit(tried), late_flag]
    )
    standing = stand(given, terms)
    assert standing.state is BoardState.VALID
    assert any(late_flag.audit_id in text and "hold" in text for text in standing.problems)


def test_hardware_is_that_of_own_isolated_grades(make, tried):
    given = make.evidence(
        tried,
        grades=[
            make.grade(tried, 1),
            make.grade(tried, 2, hardware="cpu:Other", attempt_seal="foreign"),
            make.grade(tried, 3, hardware="cpu:Session", mode="in_run"),
        ],
    )
    assert hardware_of([given, AttemptEvidence(tried, seal=None)]) == [make.cpu]
