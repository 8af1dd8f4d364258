"""`grade` on a folder that is in no archive, and its one-line reproduction."""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from command_line import Finished, Run, environment
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


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """A folder of foreign submissions: two of a model, one that nothing names."""
    root = tmp_path / "several"
    for place, kind in (("glm/layernorm_backward", "wrong"), ("layernorm-backward-gpt", "wrong")):
        source = submission_dir(load_task("layernorm-backward"), kind) / "solution.py"
        target = root / place / "solution.py" if "/" in place else root / f"{place}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    (root / "odd").mkdir()
    (root / "odd" / "answer.py").write_text("x = 1\n")
    return root


BATCH = ("--tier", "quick", "--no-qualify")


def test_foreign_submissions_are_mapped_graded_and_gone_on_with(run: Run, several: Path) -> None:
    done = run("grade", str(several), *BATCH)
    assert done.code == 1, done.err
    before, _, after = done.err.partition("grade 1/2")
    assert "glm/layernorm_backward -> layernorm-backward by glm" in before
    assert "layernorm-backward-gpt.py -> layernorm-backward by gpt" in before
    assert "not named: odd: neither it nor its folder is called like a task; --task NAME" in before
    assert "grade 2/2" in after
    assert "2 graded: 2 wrong" in done.out
    assert len((several / "grades.jsonl").read_text().splitlines()) == 2
    again = run("grade", str(several), *BATCH, "--json")
    told = json.loads(again.out)
    assert (told["grades"], told["known"]) == ([], 2)
    assert [left["name"] for left in told["left"]] == ["odd"]
    assert again.err == ""


def test_foreign_submissions_become_attempts_that_a_board_shows(run: Run, several: Path) -> None:
    (several / "odd" / "answer.py").unlink()
    ask = ("grade", str(several), "--archive", "theirs", *BATCH)
    assert run(*ask).code == 0
    assert run("audit", "--archive", "theirs").code == 0
    board = json.loads(run("board", "--archive", "theirs", "--json").out)[0]
    assert {row["label"] for row in board["rows"]} == {"glm", "gpt"}
    assert run("archive", "verify", "--archive", "theirs").code == 0
    again = run(*ask, "--json")
    assert json.loads(again.out)["grades"] == []
    attempt = json.loads(run("status", "--archive", "theirs", "--json").out)[0]["attempt"]
    one = run("grade", attempt, "--archive", "theirs", "--again", *BATCH, "--json")
    assert one.code == 1
    assert only_grade(one)["attempt_id"] == attempt
    replay = run("grade", attempt, "--archive", "theirs", "--only", "nominal", *BATCH, "--json")
    assert {row["group"] for row in only_grade(replay)["correctness"]} == {"nominal"}
    (grades,) = (several.parent / "theirs").rglob(f"{attempt}/grades")
    assert len(list(grades.iterdir())) == 2


def test_an_interrupt_ends_after_the_grade_that_runs(run: Run, several: Path) -> None:
    words = [sys.executable, "-m", "orchestrator", "grade", str(several), *BATCH]
    with subprocess.Popen(
        words, cwd=several.parent, env=environment(several), stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "not named" in line:  # said before the first grade
                running.send_signal(signal.SIGINT)
                break
        said = running.stderr.read()
    assert running.returncode == 130
    assert "Traceback" not in said
    graded = (several / "grades.jsonl").read_text().splitlines()
    assert len(graded) < 2
    assert run("grade", str(several), *BATCH).code == 1
    assert len((several / "grades.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("grade", "--nope"), "--nope"),
        (("grade", "no/such/folder"), "does not exist"),
        (("grade", "0198c0de"), "no attempt"),
        (("grade", ".", "--task", "kv-cash"), "kv-cache"),
        (("grade", "."), "no submission found"),
        (("grade", ".", "--device", "cpu", "--gpu", "GPU-1"), "twice"),
        (("grade", "--tier", "half"), "quick"),
    ],
)
def test_mistakes_are_json_where_json_was_asked_for(
    run: Run, line: tuple[str, ...], said: str
) -> None:
    done = run(*line, "--json")
    assert done.code == 2
    assert said in json.loads(done.out)["error"]["message"]
    assert "Traceback" not in done.err


def test_a_reader_that_leaves_early_meets_no_traceback(run: Run, tmp_path: Path) -> None:
    line = f"{sys.executable} -m orchestrator grade --help | head -1"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("Usage")
    assert done.stderr == ""


def test_a_machine_that_cannot_grade_makes_void_and_code_3(run: Run, several: Path) -> None:
    bare = several.parent / "bin"
    bare.mkdir()
    done = run("grade", str(several), *BATCH, "--sandbox", "bubblewrap", PATH=str(bare))
    assert done.code == 3
    assert "void, run the same command again: glm/layernorm_backward" in done.out
