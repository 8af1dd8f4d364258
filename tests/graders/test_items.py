"""Measured rubric items that are no cases: growth of cost and memory, own tests, kept leaves."""

from contextlib import contextmanager

import pytest

from graders import items
from graders.base import GradeRequest
from graders.candidate import candidate_of
from tasks.spec import RubricItem

HONEST = "def row_sum(x, scale):\n    return scale * x.sum(axis=1)\n"


@pytest.fixture
def candidate(task, submit):
    @contextmanager
    def make(text, **files):
        folder = submit({"row_sum.py": text, **{f"{n}.py": t for n, t in files.items()}})
        with candidate_of(GradeRequest(task, folder)) as found:
            yield found

    return make


def item(measure, **params):
    return RubricItem(
        id="i", dimension="d", weight=1, kind="measured", measure=measure, params=params
    )


COST = {
    "shape": {"R": 40},
    "dtype": "float32",
    "seed": 3,
    "dim": "N",
    "values": [100, 400],
    "max_ratio": 6.0,
}
QUADRATIC = """
import numpy as np

def row_sum(x, scale):
    for _ in range(x.shape[1] // 10):
        np.sort(np.tile(x, (1, x.shape[1] // 10)))
    return scale * x.sum(axis=1)
"""


@pytest.mark.parametrize(("text", "passed"), [(HONEST, 1), (QUADRATIC, 0)])
def test_cost_that_grows_faster_than_allowed_fails(text, passed, candidate):
    with candidate(text) as found:
        measured = items.measure(item("cost_growth", **COST), found)
    assert (measured.passed, measured.total) == (passed, 1)
    assert "ms at 400" in measured.detail


MEMORY = {"shape": {"R": 3, "N": 5}, "dtype": "float32", "seed": 3, "min_ratio": 0.5}
LEAK = (
    "import numpy as np\nkept = []\n\ndef row_sum(x, scale):\n    kept.append(np.ones(1 << 21))\n"
)


def test_memory_is_measured_from_outside(candidate, task):
    params = {**MEMORY, "expected_bytes": "16 * 1024 * 1024", "max_ratio": 2.0}
    with candidate(LEAK + HONEST.partition("\n")[2]) as found:
        session = found.session()
        with session:
            draw = found.draw(task.smoke[0], 1)
            session.setup(draw.params, 3)
            before = session.resident_bytes()
            session.call(draw.calls[0], 1 << 16, 3)
            grown = session.resident_bytes() - before
        measured = items.measure(item("memory_growth", **params), found)
    assert 14 << 20 < grown < 20 << 20
    assert measured.measurable and measured.unit == "ratio"


TESTS = {
    "files": ["test_*.py"],
    "arguments": [],
    "timeout_s": 20,
    "mutations": [
        {"name": "doubled", "entry": "row_sum", "change": "lambda r: 2 * r"},
        {"name": "last row lost", "entry": "row_sum", "change": "lambda r: r[:-1]"},
        {"name": "of what is not offered", "entry": "row_mean", "change": "lambda r: r"},
    ],
}
GOOD_TEST = """
import numpy as np
from row_sum import row_sum
np.testing.assert_allclose(row_sum(np.ones((3, 4), np.float32), 2.0), [8, 8, 8])
"""
WEAK_TEST = "import numpy as np\nfrom row_sum import row_sum\nrow_sum(np.ones((3, 4)), 2.0)\n"
TEXT_TEST = f"import sys\nsys.exit(len(open('row_sum.py').read()) != {len(HONEST)})\n"


NAME_TEST = "import sys, row_sum\nsys.exit(row_sum.row_sum.__name__ != 'row_sum')\n"
FORM_TEST = "import sys, row_sum\nsys.exit(hasattr(row_sum.row_sum, '__wrapped__'))\n"
TREE_TEST = "import ast, sys\nsys.exit(len(ast.parse(open('row_sum.py').read()).body) > 2)\n"


@pytest.mark.parametrize(
    ("test", "passed", "total"),
    [
        (GOOD_TEST, 3, 3),
        (WEAK_TEST, 1, 3),
        (TEXT_TEST, 0, 3),
        (NAME_TEST, 1, 3),
        (FORM_TEST, 0, 3),
        (TREE_TEST, 0, 3),
        ("import sys\nsys.exit(1)\n", 0, 3),
        ("while True: pass\n", 0, 3),
        (None, 0, 1),
    ],
)
def test_own_tests_count_as_far_as_they_notice(test, passed, total, candidate):
    params = {**TESTS, "timeout_s": 2} if test and "while" in test else TESTS
    with candidate(HONEST, **({"test_it": test} if test else {})) as found:
        measured = items.measure(item("self_test", **params), found)
    assert (measured.passed, measured.total) == (passed, total), measured.detail


def test_a_submission_that_dies_in_an_item_fails_it_and_no_more(candidate):
    text = "import os\n\ndef row_sum(x, scale):\n    os._exit(0)\n"
    with candidate(text) as found:
        measured = items.measure(item("cost_growth", **COST), found)
    assert (measured.measurable, measured.passed, measured.total) == (True, 0, 1)
    assert "crash" in measured.detail


NOTHING = (
    "import numpy as np\n\ndef row_sum(x, scale):\n    return np.zeros(len(x), dtype=x.dtype)\n"
)


@pytest.mark.parametrize("measure", ["cost_growth", "memory_growth"])
def test_a_figure_of_wrong_results_earns_nothing(measure, candidate):
    memory = {**MEMORY, "expected_bytes": "60", "max_ratio": 1e9, "min_ratio": 0.0}
    with candidate(NOTHING) as found:
        params = COST if measure == "cost_growth" else memory
        measured = items.measure(item(measure, **params), found)
    assert (measured.measurable, measured.passed, measured.total) == (True, 0, 1)
    assert "wrong" in measured.detail
