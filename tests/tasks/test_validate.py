import re
import shutil

import pytest

from candidates import written
from tasks.loader import cheats, load_task, task_names
from tasks.scaffold import languages, scaffold
from tasks.validate import problems


@pytest.mark.parametrize("name", task_names())
def test_every_shipped_task_is_in_order(name):
    assert problems(name) == []
    assert len(cheats(load_task(name))) >= 4


@pytest.fixture
def folder(tmp_path):
    """A small task that is in order, to be broken."""
    return scaffold("row-norm", "numpy", tmp_path)


def replace(folder, file, old, new):
    path = folder / file
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


TOML, REFERENCE, RUBRIC = "task.toml", "public/reference.py", "sealed/rubric.toml"
OUTPUT = "return (exact * scale * weight).astype(x.dtype)"
BREAKS = {
    "misspelt field": (TOML, "regime =", "regmie =", r"task\.toml:\d+: regmie"),
    "formula": (TOML, 'flops = "4 *', 'flops = "4 * nope *', "work.flops: .*nope"),
    "shrinking work": (TOML, '"4 * R * N"', '"4 * R * (9999 - N)"', "twice the N gives less work"),
    "constant work": (TOML, '"4 * R * N"', '"4096"', "does not grow with the dims"),
    "negative work": (TOML, '"4 * R * N"', '"R - 4096 * N"', "work.flops: .*must be positive"),
    "floor of bytes": (
        TOML,
        '"R * N * itemsize"',
        '"3 * R * N * itemsize"',
        "a floor is the least",
    ),
    "floor of flops": (
        TOML,
        'floor_bytes = "R',
        'floor_flops = "5 * R',
        "work.floor_flops: .*least",
    ),
    "twin shapes": (TOML, 'name = "r3_n64"', 'name = "r5_n33"', "2 shapes named"),
    "name": ("public/prompt.md", "rms_norm(", "norm(", "does not name `rms_norm`"),
    "product import": ("public/adapter.py", "def setup", "import tasks\n\n\ndef setup", "imports"),
    "adapter": ("public/adapter.py", "def run(entries, eps,", "def run(entries,", "3 arguments"),
    "random inputs": (REFERENCE, "Philox(seed)", "Philox()", "differs between two"),
    "constant inputs": (REFERENCE, "Philox(seed)", "Philox(1)", "ignores its seed"),
    "random reference": (
        REFERENCE,
        OUTPUT,
        "return (exact * scale * weight * (1 + np.random.rand() / 100)).astype(x.dtype)",
        "reference differs between two runs",
    ),
    "written inputs": (
        REFERENCE,
        OUTPUT,
        f"x *= 1.5\n    {OUTPUT}",
        "reference changes its inputs",
    ),
    "leaf": (REFERENCE, '[{"y": ', '[{"o": ', r"leaves \('o',\)"),
    "reference raises": (REFERENCE, "exact = x", "exact = 1 // 0 + x", "ZeroDivisionError"),
    "zeros": (REFERENCE, "exact * scale * weight)", "0 * exact)", "zeros would pass"),
    "constant output": (
        REFERENCE,
        "exact * scale * weight)",
        "0 * exact + 3)",
        "the mean of the output everywhere would pass",
    ),
    "no spread": (
        REFERENCE,
        "exact * scale * weight)",
        "exact * scale * weight / 1e5 + 3)",
        r"`y` spreads by .*e-0., its tolerance allows an rms error of",
    ),
    "identity": (REFERENCE, OUTPUT, "return x.copy()", "the input `x` itself would pass"),
    "unread input": (
        REFERENCE,
        "exact * scale * weight)",
        "exact * scale)",
        "other values of the input `weight` move the output by less",
    ),
    "hardly read input": (
        REFERENCE,
        "exact * scale * weight)",
        "exact * scale * (1 + 1e-8 * weight))",
        "other values of the input `weight` move the output by less",
    ),
    "narrow gate": (
        TOML,
        "rms_ratio = { float32 = 2e-6 }",
        "rms_ratio = { float32 = 1e-9 }",
        "half a last place of float32 would fail; loosen",
    ),
    "gate far above honest work": (
        TOML,
        "rms_ratio = { float32 = 2e-6 }",
        "rms_ratio = { float32 = 2e-6 }\nhonest = { float32 = 8e-7 }",
        "more than 2 times the 8e-07 of gate.honest; tighten",
    ),
    "anchors": (RUBRIC, '    "None.",\n', "", "five `anchors`"),
    "dimension": (RUBRIC, '"Clarity" = 1.0', '"Clear" = 1.0', "not declared"),
    "unserved item": ("sealed/cases.py", '"views"', '"scales"', "no case counts for"),
    "unknown item": ("sealed/cases.py", '"views"', '"veiws"', "no item measured by"),
    "cases by chance": (
        "sealed/cases.py",
        "x[0] = 0",
        "x[0] = np.random.rand()",
        "differs between two runs with one seed",
    ),
    "few cases": (TOML, "[properties]", "[properties]\ncases = 9", "cases: 9; at"),
    "sizes": (TOML, "R = { least = 1", "R = { least = 10", "dims.R: no sizes"),
    "unknown dim": (TOML, "R = { least = 1", "Q = { least = 1", "dims.Q: no dim of"),
    "pattern": (TOML, "[properties]", '[properties]\nleave_out = ["tails"]', "no pattern `tails`"),
    "written": (
        TOML,
        'outputs = ["y"]',
        'outputs = ["y"]\nwritten = { y = "x" }',
        "no mutable_inputs",
    ),
    "cases raise": ("sealed/cases.py", "enumerate(SIZES", "enumerate(SZIES", "NameError"),
    "no default": (
        "submissions/cheats/pointer_cache/expect.toml",
        "default = true",
        "default = false",
        "0 cheats say",
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


@pytest.mark.parametrize("language", languages())
def test_every_template_is_in_order(tmp_path, language):
    assert problems(scaffold("some-task", language, tmp_path)) == []


def test_a_tolerance_that_takes_coarser_work_is_told(folder):
    replace(
        folder, TOML, "float32 = { atol = 1e-5, rtol = 1e-5", "float32 = { atol = 0.1, rtol = 0.1"
    )
    assert problems(folder) == []  # the gate is tight
    replace(folder, TOML, "rms_ratio = { float32 = 2e-6 }", "rms_ratio = { float32 = 0.01 }")
    found = problems(folder)
    assert any("the result rounded to bfloat16 would pass" in line for line in found)
    assert any("inputs and weights rounded to bfloat16 would pass" in line for line in found)
    assert not any("zeros would pass" in line for line in found)


def test_a_float8_result_is_told_where_bfloat16_is_asked_for(tmp_path):
    folder = scaffold("row-norm", "triton", tmp_path)
    replace(folder, TOML, "atol = 0.02, rtol = 0.02", "atol = 0.2, rtol = 0.2")
    replace(folder, TOML, "rms_ratio = { bfloat16 = 0.005 }", "rms_ratio = { bfloat16 = 0.1 }")
    found = problems(folder)
    assert any("the result rounded to float8_e4m3 would pass" in line for line in found)


def test_a_tolerance_that_zeros_would_meet_is_told(folder):
    replace(folder, TOML, "float32 = { atol = 1e-5", "float32 = { atol = 9.0")
    replace(folder, TOML, "rms_ratio = { float32 = 2e-6 }", "rms_ratio = { float32 = 2.0 }")
    assert any("zeros would pass" in line for line in problems(folder))


def test_a_task_is_found_by_folder_and_problems_say_where(folder):
    assert problems(str(folder)) == problems(folder) == []
    written(folder, {"public/reference.py": "import nothing_of_that_name"})
    found = problems(folder)
    assert found == [line for line in found if line.startswith(f"{folder}/public/reference.py:1:")]
