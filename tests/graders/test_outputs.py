"""Every form of output: array, tuple, nested dict, written in place, state; leaves by path."""

from collections.abc import Callable

import pytest

from graders.base import GradeRequest
from graders.pipeline import RefereeGrader
from tasks.loader import read_task
from transcripts.records import Grade

TUPLE, NESTED, IN_PLACE, STATE, BARE = (
    "tuple-moments",
    "nested-moments",
    "in-place-scale",
    "running-sum",
    "half-scale",
)


@pytest.fixture
def graded(library, submit) -> Callable[[str, str], Grade]:
    """Grade a text, or the oracle, of one of the small tasks."""

    def run(name: str, text: str = "") -> Grade:
        task = read_task(library / name)
        folder = submit({"solution.py": "import numpy as np\n" + text}) if text else None
        folder = folder or task.folder / "submissions" / "oracle"
        return RefereeGrader().grade(
            GradeRequest(task, folder, tier="quick", correctness_only=True)
        )

    return run


@pytest.mark.parametrize("name", [TUPLE, NESTED, IN_PLACE, STATE, BARE])
def test_an_honest_submission_passes_in_every_form_of_output(graded, name):
    grade = graded(name)
    assert grade.result == "pass", grade.message
    assert [check.check for check in grade.checks if check.passed is not True] == []
    assert sum(line.runs for line in grade.correctness if line.group == "property") >= 20


DISHONEST = {
    "the second of a tuple": (
        TUPLE,
        "def moments(x):\n    mean = x.mean(axis=1, dtype=np.float64).astype(x.dtype)\n"
        "    return mean, x[:, :-1].max(axis=1, initial=-9).astype(x.dtype)\n",
        "1: ",
    ),
    "a tuple that ends early": (
        TUPLE,
        "def moments(x):\n    return (x.mean(axis=1, dtype=np.float64).astype(x.dtype),)\n",
        "no output '1'",
    ),
    "an integer below": (
        NESTED,
        "def sums(x):\n    y = x.sum(axis=1, dtype=np.float64).astype(x.dtype)\n"
        "    count = (x[:, :-1] > 0).sum(axis=1)\n"
        "    return {'y': y, 'state': {'count': count, 'last': x[:, -1].copy()}}\n",
        "state.count: ",
    ),
    "a leaf below that is missing": (
        NESTED,
        "def sums(x):\n    return {'y': x.sum(axis=1), 'state': {'count': (x > 0).sum(axis=1)}}\n",
        "no output 'state.last'",
    ),
    "a view of an input": (
        NESTED,
        "def sums(x):\n    y = x.sum(axis=1, dtype=np.float64).astype(x.dtype)\n"
        "    return {'y': y, 'state': {'count': (x > 0).sum(axis=1), 'last': x[:, -1]}}\n",
        "`state.last` shares memory with an input",
    ),
    "a result that is returned and not written": (
        IN_PLACE,
        "def centre(x, weight):\n"
        "    return weight * (x - x.mean(axis=1, dtype=np.float64, keepdims=True))\n",
        "y: ",
    ),
    "another input written too": (
        IN_PLACE,
        "def centre(x, weight):\n"
        "    x[...] = weight * (x - x.mean(axis=1, dtype=np.float64, keepdims=True))\n"
        "    weight[:] = 1\n",
        "input `weight` was changed",
    ),
    "a state that stays": (STATE, "def advance(x, total):\n    return total.copy()\n", "total: "),
    "a state that is returned itself": (
        STATE,
        "def advance(x, total):\n    total += x.sum(axis=0)\n    return total\n",
        "before: ",
    ),
    "another dtype": (
        BARE,
        "def softplus(x):\n    wide = (x.astype(np.uint32) << 16).view(np.float32)\n"
        "    return np.logaddexp(np.float32(0), wide)\n",
        "float32",
    ),
    "bits compared as the numbers that they are": (
        BARE,
        "def softplus(x):\n    wide = (x.astype(np.uint32) << 16).view(np.float32)\n"
        "    bits = np.maximum(wide, 0.1).view(np.uint32)\n"
        "    return (bits >> 16).astype(np.uint16)\n",
        "off by",
    ),
}


@pytest.mark.parametrize("what", DISHONEST)
def test_a_wrong_leaf_is_named_by_its_path(graded, what):
    name, text, told = DISHONEST[what]
    grade = graded(name, text)
    assert grade.result == "wrong" and told in grade.message, grade.message


def test_the_storage_of_an_earlier_output_may_be_used_again(graded):
    kept = """
kept = {}

def moments(x):
    if x.shape not in kept:
        kept[x.shape] = np.empty(len(x), x.dtype), np.empty(len(x), x.dtype)
    mean, largest = kept[x.shape]
    mean[:] = x.mean(axis=1, dtype=np.float64)
    np.max(x, axis=1, out=largest)
    return mean, largest
"""
    grade = graded(TUPLE, kept)
    assert grade.result == "pass", grade.message


def test_an_earlier_output_that_is_handed_out_again_unfilled_is_wrong(graded):
    kept = """
kept = {}

def moments(x):
    if x.shape not in kept:
        kept[x.shape] = x.mean(axis=1, dtype=np.float64).astype(x.dtype), x.max(axis=1)
    return kept[x.shape]
"""
    assert graded(TUPLE, kept).result == "wrong"
