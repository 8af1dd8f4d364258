import json
import shutil

import pytest

from candidates import written
from command_line import run_in
from tasks.loader import LIBRARY


@pytest.fixture
def broken(tmp_path):
    folder = shutil.copytree(LIBRARY / "kv-cache", tmp_path / "kv-cache")
    return written(folder, {"public/reference.py": "import numpy as np\n\nx = nq.zeros(3)\n"})


def test_list_names_tasks_decks_and_digests(tmp_path):
    done = run_in(tmp_path, "tasks", "list", "--json")
    listed = json.loads(done.out)
    assert done.code == 0
    assert "kv-cache" in listed["decks"]["rounds"]
    [row] = [row for row in listed["tasks"] if row["task"] == "kv-cache"]
    assert row["decks"] == ["rounds"] and len(row["digest"]) == 64
    assert "kv-cache" in run_in(tmp_path, "tasks", "list").out


def test_show_prints_the_request_and_the_work_of_each_shape(tmp_path):
    done = run_in(tmp_path, "tasks", "show", "kv-cache")
    assert done.code == 0
    assert "class KVCache" in done.out and "GFLOP" in done.out and "Correctness" in done.out
    shown = json.loads(run_in(tmp_path, "tasks", "show", "kv-cache", "--json").out)
    shape = shown["work_by_shape"]["l2_b2_h8_d64_t512_f32"]
    # 2 rows of 520.5 tokens at the middle step; keys and values of 8 heads of 64; q, out, new k, v
    assert shape["bytes"] == 4 * 2 * 8 * 64 * (2 * 2 * 520.5 + 2 * 4)


def test_an_unknown_task_is_one_clear_screen(tmp_path):
    done = run_in(tmp_path, "tasks", "show", "kv-cahce")
    assert done.code == 2
    assert "did you mean kv-cache" in done.err and "Traceback" not in done.err


def test_check_accepts_a_shipped_task_and_tells_what_is_broken(tmp_path, broken):
    assert run_in(tmp_path, "tasks", "check", "kv-cache").code == 0
    done = run_in(tmp_path, "tasks", "check", str(broken))
    assert done.code == 2 and "Traceback" not in done.err
    assert "public/reference.py:3: NameError" in done.out
    found = json.loads(run_in(tmp_path, "tasks", "check", str(broken), "--json").out)
    assert list(found) == [str(broken)]


def test_new_writes_a_task_that_is_in_order_and_says_how_to_go_on(tmp_path):
    done = run_in(tmp_path, "tasks", "new", "row-norm", "--json")
    told = json.loads(done.out)
    assert done.code == 0 and told["folder"] == "./row-norm"
    assert all((tmp_path / file).is_file() for file in told["files"])
    check, grade = (step.split()[1:] for step in told["next"])
    assert run_in(tmp_path, *check).code == 0
    assert run_in(tmp_path, *grade, "--tier", "quick", "--correctness-only").code == 0
    again = run_in(tmp_path, "tasks", "new", "row-norm")
    assert again.code == 2 and "is there already" in again.err and "Traceback" not in again.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("Row_Norm",), "is no name for a task"),
        (("kv-cache",), "there is a task `kv-cache`"),
        (("row-norm", "--language", "tritn"), "no template for `tritn`; there is triton"),
        (("row-norm", "--into", "task.toml/below"), "cannot be written"),
    ],
)
def test_a_task_that_cannot_be_new_is_one_clear_screen(tmp_path, arguments, said):
    (tmp_path / "task.toml").touch()
    done = run_in(tmp_path, "tasks", "new", *arguments)
    assert done.code == 2 and said in done.err and "Traceback" not in done.err


@pytest.mark.parametrize(
    ("submission", "result"),
    [("oracle", "pass"), ("naive", "pass"), ("wrong", "wrong")],
)
@pytest.mark.parametrize("language", ["numpy", "triton"])
def test_submissions_of_a_new_task_get_their_words(tmp_path, language, submission, result):
    run_in(tmp_path, "tasks", "new", "row-norm", "--language", language)
    line = ("grade", f"row-norm/submissions/{submission}", "--task", "./row-norm")
    how = ("--device", "cpu", "--tier", "quick", "--correctness-only", "--json")
    [graded] = json.loads(run_in(tmp_path, *line, *how).out)["grades"]
    grade = graded["grade"]
    assert grade["result"] == result, grade


def test_an_unknown_deck_is_one_clear_screen(tmp_path):
    done = run_in(tmp_path, "tasks", "lock", "round")
    assert done.code == 2 and "did you mean rounds" in done.err
