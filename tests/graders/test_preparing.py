"""What is found before a submission's turn, and the replay of single cases."""

from collections.abc import Callable
from pathlib import Path

import pytest

from graders.base import GradeRequest
from graders.pipeline import RefereeGrader
from tasks.spec import Task
from transcripts.words import GradeResult

Submit = Callable[[dict[str, str]], Path]
HONEST = "def row_sum(x, scale):\n    return x.sum(axis=1)\n"


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({}, GradeResult.EMPTY),
        ({"notes.md": "nothing"}, GradeResult.IMPORT),
        ({"row_sum.py": f"import scipy\n{HONEST}"}, GradeResult.FORBIDDEN),
    ],
)
def test_what_the_text_decides_is_found_before_and_is_the_same_grade(
    files: dict[str, str], word: GradeResult, task: Task, submit: Submit
) -> None:
    request = GradeRequest(task, submit(files), tier="quick")
    grader = RefereeGrader()
    prepared = grader.prepare(request)
    early, late = grader.grade(request, prepared), grader.grade(request)
    assert prepared.failure is not None
    assert early.result is late.result is word
    assert early.message == late.message


def test_a_prepared_submission_is_measured_like_any_other(task: Task) -> None:
    folder = task.folder / "submissions" / "oracle"
    request = GradeRequest(task, folder, tier="quick", correctness_only=True)
    prepared = RefereeGrader().prepare(request)
    assert RefereeGrader().grade(request, prepared).result is GradeResult.PASS


def test_one_case_is_replayed_alone_and_a_case_that_is_none_is_said(task: Task) -> None:
    folder = task.folder / "submissions" / "wrong"
    whole = RefereeGrader().grade(GradeRequest(task, folder, tier="quick"))
    failed = next(row for row in whole.correctness if not row.passed)
    again = GradeRequest(
        task, folder, tier="quick", seed=whole.seed, only=f"{failed.group}/{failed.shape}"
    )
    (row,) = RefereeGrader().grade(again).correctness
    assert row == failed
    nowhere = RefereeGrader().grade(GradeRequest(task, folder, tier="quick", only="nominal/none"))
    assert nowhere.result is GradeResult.VOID
    assert "nominal/tiny" in nowhere.message
