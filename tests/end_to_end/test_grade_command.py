"""`grade` on a folder that is in no archive, and its one-line reproduction."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from command_line import Finished, Run
from tasks.loader import load_task, submission_dir


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    for path in submission_dir(load_task("layernorm-backward"), "wrong").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def only_grade(done: Finished) -> dict[str, Any]:
    (row,) = json.loads(done.out)["grades"]
    grade: dict[str, Any] = row["grade"]
    return grade


def test_a_wrong_folder_is_explained_and_its_plan_can_be_replayed(run: Run, wrong: Path) -> None:
    ask = ("grade", str(wrong), "--task", "layernorm-backward", "--tier", "quick", "--json")
    done = run(*ask)
    assert done.code == 1
    grade = only_grade(done)
    assert grade["result"] == "wrong"
    words = shlex.split(grade["reproduce"])
    assert str(wrong) in words
    again = run(*words[words.index("grade") :], "--json")
    replayed = only_grade(again)
    assert replayed["seed"] == grade["seed"]
    assert replayed["correctness"] == grade["correctness"]


def test_explain_shows_the_worst_case_and_the_seed(run: Run, wrong: Path) -> None:
    done = run("grade", str(wrong), "--task", "layernorm-backward", "--tier", "quick", "--explain")
    assert "FAIL stress:offset" in done.out
    assert "seed" in done.out


def test_a_folder_without_the_interface_is_told_what_is_missing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "solution.py").write_text("def f(x):\n    return x\n")
    done = run("grade", "other", "--task", "kv-cache", "--tier", "quick")
    assert done.code == 1
    assert "import" in done.out
    assert "not measurable" in done.out


def test_a_folder_needs_its_task(run: Run, wrong: Path) -> None:
    done = run("grade", str(wrong))
    assert done.code == 2
    assert "--task" in done.err
