"""The plan of a correctness run."""

from dataclasses import replace
from pathlib import Path

import pytest

from graders import correctness
from graders.base import GradeRequest
from graders.candidate import candidate_of
from tasks.spec import Task


@pytest.mark.parametrize(("device", "extra"), [("cpu", 0), ("GPU-6b1f8a20", 1), ("cuda", 1)])
def test_cases_are_asked_for_with_the_kind_of_the_device(
    task: Task, device: str, extra: int
) -> None:
    folder: Path = task.folder / "submissions" / "oracle"
    with candidate_of(GradeRequest(task, folder, isolation="process")) as candidate:
        plan = correctness.plan(replace(candidate, device=device), "a seed", "quick")
        names = [case.name for case in plan]
    assert names.count("on a GPU only") == extra
