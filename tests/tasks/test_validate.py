import re
import shutil

import pytest

from candidates import written
from tasks.loader import LIBRARY, task_names
from tasks.validate import problems

TASK = "kv-cache"


@pytest.mark.parametrize("name", task_names())
def test_every_shipped_task_is_in_order(name):
    assert problems(name) == []


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(LIBRARY / TASK, tmp_path / TASK)


def replace(folder, file, old, new):
    path = folder / file
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


BREAKS = {
    "misspelt field": ("task.toml", "regime =", "regmie =", r"task\.toml:\d+: regmie"),
    "formula": ("task.toml", 'flops = "4 *', 'flops = "4 * nope *', "work.flops: .*nope"),
    "name": ("public/prompt.md", "class KVCache", "class Cache", "does not name `KVCache`"),
    "product import": ("public/adapter.py", "import inspect", "import inspect, tasks", "imports"),
    "adapter": ("public/adapter.py", "def run(entries, state,", "def run(entries,", "3 arguments"),
    "random inputs": ("public/reference.py", "Philox(seed)", "Philox()", "differs between two"),
    "constant inputs": ("public/reference.py", "Philox(seed)", "Philox(1)", "ignores its seed"),
    "leaf": ("public/reference.py", '[{"out": out', '[{"o": out', r"leaves \('o',\)"),
    "zero reference": (
        "public/reference.py",
        "out[:, row] = result",
        "out[:, row] = 0 * result",
        "zeros would pass",
    ),
    "reference raises": ("public/reference.py", "kv_heads = k.shape[2]", "kv_heads = 0", "Zero"),
    "anchors": ("sealed/rubric.toml", '    "None, or only the code.",\n', "", "five `anchors`"),
    "dimension": ("sealed/rubric.toml", '"GPU Mapping" = 10', '"GPU" = 10', "not declared"),
    "unserved item": ("sealed/cases.py", '"causality"', '"reset"', "no case counts for"),
    "unknown item": ("sealed/cases.py", '"causality"', '"casuality"', "no item measured by"),
    "few cases": ("task.toml", "[limits]", "[properties]\ncases = 9\n\n[limits]", "cases: 9; at"),
    "sizes": (
        "task.toml",
        "[limits]",
        "[properties.dims]\nbatch = { least = 3, most = 2 }\n\n[limits]",
        "dims.batch: no sizes",
    ),
    "pattern": (
        "task.toml",
        "[limits]",
        '[properties]\nleave_out = ["tails"]\n\n[limits]',
        "no pattern `tails`",
    ),
    "written": (
        "task.toml",
        'outputs = ["out"]',
        'outputs = ["out"]\nwritten = { out = "q" }',
        "no mutable_inputs",
    ),
    "cases raise": ("sealed/cases.py", "plan = _Plan(", "plan = _Plna(", "NameError"),
    "two defaults": (
        "submissions/cheats/exit-pass/expect.toml",
        "verdict",
        "default = true\nverdict",
        "2 cheats say",
    ),
}


@pytest.mark.parametrize("what", BREAKS)
def test_a_broken_task_is_told(folder, what):
    file, old, new, said = BREAKS[what]
    replace(folder, file, old, new)
    found = problems(folder)
    assert found and all(str(folder) in line for line in found)
    assert any(re.search(said, line) for line in found), found


@pytest.mark.parametrize("missing", ["public/prompt.md", "sealed/rubric.toml", "submissions/naive"])
def test_a_missing_part_is_told(folder, missing):
    path = folder / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert any(missing in line and "missing" in line for line in problems(folder))


def test_a_tolerance_that_zeros_would_meet_is_told(folder):
    replace(folder, "task.toml", "float32 = { atol = 1e-5", "float32 = { atol = 9.0")
    assert any("zeros would pass" in line for line in problems(folder))


def test_a_reference_that_is_the_identity_is_told(folder):
    replace(
        folder,
        "public/reference.py",
        '[{"out": out.astype(params["dtype"])} for out in outs]',
        '[{"out": call["q"].copy()} for call in calls]',
    )
    assert any("an input of the same shape would pass" in line for line in problems(folder))


def test_a_task_is_found_by_folder_and_problems_say_where(folder):
    assert problems(str(folder)) == problems(folder) == []
    written(folder, {"public/reference.py": "import nothing_of_that_name"})
    found = problems(folder)
    assert found == [line for line in found if line.startswith(f"{folder}/public/reference.py:1:")]
