"""The plan of a correctness run."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from graders import correctness
from graders.base import GradeRequest
from graders.candidate import candidate_of
from graders.hints import MOST, constants
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


def test_a_plan_is_the_same_again_and_has_generated_cases_behind_the_tasks_own(task: Task) -> None:
    folder: Path = task.folder / "submissions" / "oracle"
    with candidate_of(GradeRequest(task, folder, isolation="process")) as candidate:
        one, two = (list(correctness.plan(candidate, "a seed", "quick")) for _ in range(2))
    names = [case.name for case in one]
    assert names == [case.name for case in two]
    assert all((a.calls[0]["x"] == b.calls[0]["x"]).all() for a, b in zip(one, two, strict=True))
    first = next(n for n, name in enumerate(names) if name.startswith("generated"))
    assert len(names) - first >= 20 and "strided" in names[:first]


def test_constants_of_the_source_steer_the_generated_cases(
    task: Task, submit: Callable[[dict[str, str]], Path]
) -> None:
    for limit in ("17.25", "18.5"):
        folder = submit({"row_sum.py": f"LIMIT = {limit}\n\ndef row_sum(x, scale): ...\n"})
        with candidate_of(GradeRequest(task, folder, isolation="process")) as candidate:
            cases = list(correctness.plan(candidate, "a seed", "full"))
        near = [
            case.name
            for case in cases
            if abs(float(abs(case.calls[0]["x"]).max()) - float(limit)) < 0.2
        ]
        assert any("as large as" in name for name in near), limit


def test_constants_are_read_from_a_bounded_part_of_the_source(
    submit: Callable[[dict[str, str]], Path],
) -> None:
    numbers = " ".join(map(str, range(10_000, 300_000)))  # 2 MB
    folder = submit({"a.h": numbers, "b.h": numbers, "c.h": numbers, "z.py": "LIMIT = 17.25"})
    found = constants(folder)
    assert 17.25 in found and len(found) == MOST
    (folder / "c.h").write_text(numbers.replace("10000", "17.25 10000", 1))
    assert constants(folder) == found  # it is larger than what was left
