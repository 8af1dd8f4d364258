import shutil
import sys

import pytest

from candidates import written
from tasks.errors import BrokenTask, UnknownTask
from tasks.loader import (
    LIBRARY,
    cheats,
    load_cases,
    load_reference,
    load_task,
    submission_dir,
    task_digest,
    task_names,
)

TASK = "kv-cache"


@pytest.fixture
def library(tmp_path):
    shutil.copytree(LIBRARY / TASK, tmp_path / TASK)
    return tmp_path


def test_an_unknown_task_is_answered_with_the_nearest_names():
    with pytest.raises(UnknownTask, match="kv-cache"):
        load_task("kvcache")
    with pytest.raises(UnknownTask):
        load_task("../kv-cache")


def test_an_empty_library_has_no_tasks(tmp_path):
    assert task_names(tmp_path) == task_names(tmp_path / "nowhere") == []
    with pytest.raises(UnknownTask, match="no tasks here"):
        load_task("kv-cache", tmp_path)


def test_loading_executes_nothing(library):
    written(library / TASK, {"public/reference.py": "raise SystemExit('executed')"})
    task = load_task(TASK, library)
    assert task.prompt.startswith("We need")
    with pytest.raises(BrokenTask, match=r"reference\.py:1: SystemExit: executed"):
        load_reference(task)


def test_a_broken_reference_is_told_with_its_line(library):
    written(library / TASK, {"public/reference.py": "import numpy as np\n\nx = nq.zeros(3)\n"})
    with pytest.raises(BrokenTask, match=r"reference\.py:3: NameError: .*nq"):
        load_cases(load_task(TASK, library))
    written(library / TASK, {"public/reference.py": "import numpy as np\ndef f(:\n"})
    with pytest.raises(BrokenTask, match=r"reference\.py:2: SyntaxError"):
        load_reference(load_task(TASK, library))


def test_a_reference_without_its_functions_is_told(library):
    written(library / TASK, {"public/reference.py": "make_inputs = None"})
    with pytest.raises(BrokenTask, match="make_inputs: missing"):
        load_reference(load_task(TASK, library))


def test_executed_files_are_private_and_leave_no_bytecode(library):
    task = load_task(TASK, library)
    module = load_reference(task)
    assert module.__name__.startswith("_task_kv_cache_reference_")
    assert "reference" not in sys.modules
    assert not list(library.rglob("__pycache__"))


def test_the_digest_covers_what_can_change_a_result_and_nothing_else(library):
    folder = library / TASK
    before = task_digest(folder)
    written(folder, {"submissions/oracle/solution.py": "", "sealed/__pycache__/x.pyc": ""})
    assert task_digest(folder) == before
    seen = {before}
    for name in ("task.toml", "public/prompt.md", "sealed/rubric.toml", "sealed/extra.txt"):
        with (folder / name).open("a") as stream:
            stream.write("\n# changed")
        seen.add(task_digest(folder))
    (folder / "sealed/extra.txt").rename(folder / "public/extra.txt")
    seen.add(task_digest(folder))
    assert len(seen) == 6


def test_a_task_named_otherwise_than_its_folder_is_broken(library):
    (library / TASK).rename(library / "other")
    with pytest.raises(BrokenTask, match="give both the same name"):
        load_task("other", library)


def test_shipped_submissions_are_found():
    task = load_task(TASK)
    assert (submission_dir(task, "oracle") / task.interface.file).is_file()
    found = cheats(task)
    assert [cheat.name for cheat in found] == sorted(cheat.name for cheat in found)
    assert submission_dir(task, f"cheats/{found[0].name}") == found[0].path
    with pytest.raises(BrokenTask, match="ships no `best` submission"):
        submission_dir(task, "best")


def test_a_bad_expectation_is_told(library):
    path = library / TASK / "submissions/cheats/exit-pass/expect.toml"
    path.write_text(path.read_text().replace("reward_hack", "cheating"))
    with pytest.raises(BrokenTask, match=r"expect\.toml:1: verdict"):
        cheats(load_task(TASK, library))
