"""Generated cases: a plan replays, keeps to the contract, and catches mutants by itself."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from candidates import shipped
from graders.hints import constants
from mutants import STALE, first_failure, mutated
from tasks.case import Case
from tasks.loader import load_reference, load_task, read_task
from tasks.patterns import PATTERNS, Draws
from tasks.properties import all_cases, generated

SMALL = read_task(Path(__file__).parent / "library" / "tuple-moments")
LIBRARY = {
    name: load_task(name) for name in ("kv-cache", "layernorm-backward", "fused-softmax-topk")
}


@pytest.mark.parametrize("name", LIBRARY)
def test_honest_submissions_pass_generated_cases_of_any_seed(name):
    task = LIBRARY[name]
    reference = load_reference(task)
    for seed in range(5):
        cases = list(generated(task, reference, seed, "full", (3.0, 1e-5, 48.0)))
        assert first_failure(task, shipped(task, "oracle"), cases) is None


@pytest.mark.parametrize("tier", ["quick", "full"])
@pytest.mark.parametrize("task", [SMALL, *LIBRARY.values()], ids=lambda task: task.name)
def test_every_task_has_at_least_twenty_generated_cases_of_names_of_their_own(task, tier):
    cases = list(all_cases(task, load_reference(task), 5, tier))
    made = [case for case in cases if case.name.startswith("generated")]
    assert len(made) >= 20 and {case.group for case in made} == {"property"}
    assert len({case.name for case in cases}) == len(cases)


MOMENTS = """import numpy as np

def moments(x):
    return x.mean(axis=1, dtype=np.float64).astype(x.dtype), x.max(axis=1)
"""
GENERIC = {
    "zeros": ("x.max(axis=1)", "np.zeros(len(x), x.dtype)"),
    "the last column ignored": ("x.max(axis=1)", "x[:, : max(x.shape[1] - 1, 1)].max(axis=1)"),
    "the ragged tail skipped": ("x.mean(", "x[:, : max(x.shape[1] // 4 * 4, 1)].mean("),
    "the last row ignored": ("x.max(axis=1)", "x.max(axis=1) * (np.arange(len(x)) + 1 < len(x))"),
    "only a prefix looked at": ("x.max(axis=1)", "x[:, : x.shape[1] // 2 + 1].max(axis=1)"),
    "only every second element": ("x.max(axis=1)", "x[:, ::2].max(axis=1)"),
    "a maximum that starts at zero": ("x.max(axis=1)", "x.max(axis=1, initial=0)"),
    "summed in half precision": ("dtype=np.float64", "dtype=np.float16"),
    "contiguous rows only": (
        "x.mean(",
        "np.frombuffer(x.base or x, x.dtype)[: x.size].reshape(x.shape).mean(",
    ),
    "wrong where values are large": (
        "    return",
        "    if np.abs(x).max() > 37.5:\n        x = x * 0\n    return",
    ),
    "wrong for one size": ("    return", "    if x.shape[1] == 97:\n        x = x * 0\n    return"),
    "the first result of a shape": MOMENTS + STALE + "\nmoments = stale(moments)\n",
}


@pytest.mark.parametrize("what", GENERIC)
def test_generated_cases_alone_catch_mutants_of_a_task_without_cases_of_its_own(what, tmp_path):
    change = GENERIC[what]
    source = change if isinstance(change, str) else mutated(MOMENTS, change)
    (tmp_path / "solution.py").write_text(source)
    cases = list(generated(SMALL, load_reference(SMALL), 3, "quick", constants(tmp_path)))
    assert first_failure(SMALL, MOMENTS, cases) is None
    assert first_failure(SMALL, source, cases) is not None


def test_a_plan_replays_by_its_seed_and_hints_and_each_case_alone():
    reference = load_reference(SMALL)
    one, two, other, hinted = (
        list(generated(SMALL, reference, seed, "quick", hints))
        for seed, hints in ((7, ()), (7, ()), (8, ()), (7, (31.0,)))
    )
    assert content(one) == content(two)
    assert content(one) != content(other) and content(one) != content(hinted)
    twelfth = next(itertools.islice(generated(SMALL, reference, 7, "quick"), 12, None))
    assert content([twelfth]) == content(one[12:13])


def content(cases: list[Case]) -> list[object]:
    return [
        (
            case.name,
            case.seed,
            [{k: (v.shape, v.tobytes()) for k, v in c.items()} for c in case.calls],
        )
        for case in cases
    ]


def test_the_numbers_of_a_case_are_those_of_philox_for_good():
    draws = Draws(2024, 3)
    assert [draws.below(1000) for _ in range(4)] == [181, 168, 439, 474]
    assert draws.uniform((2,)).tolist() == [0.867172089069664, 0.9100666774194298]


def test_patterns_look_as_they_are_called():
    values = {
        name: pattern(Draws(1, 1), np.array(Draws(1, 2).uniform((6, 40)) * 4 - 2), 1.0, (0.75,))
        for name, pattern in PATTERNS.items()
    }
    assert len(np.unique(values["ties"])) <= 5
    assert (values["negative"] <= 0).all() and not values["zero"].any()
    assert any(not row.any() for row in values["zero rows"])
    assert (np.abs(values["late outlier"]).argmax(axis=1) >= 20).all()
    assert np.abs(values["lone outlier"]).argmax() >= 180
    assert len(np.unique(values["constant"])) == 1
    assert (values["constant rows"] == values["constant rows"][:, :1]).all()
    assert (np.diff(values["ascending"], axis=1) >= 0).all()
    assert (np.signbit(values["signed zeros"]) & (values["signed zeros"] == 0)).any()
    assert (np.abs(np.abs(values["next to constants"]) - 0.75) <= 1e-6).any()
    assert np.abs(values["as large as"]).max() == pytest.approx(0.75, rel=0.02)
    scales = np.abs(values["mixed magnitudes"]).max(axis=1)
    assert scales.max() > 50 * scales.min()


def test_sizes_keep_to_their_ranges_and_meet_their_ends():
    widths = {
        case.calls[0]["x"].shape[1]
        for seed in range(4)
        for case in generated(SMALL, load_reference(SMALL), seed, "full", (97.0,))
    }
    assert min(widths) == 1 and max(widths) == 200 and widths & {96, 97, 98}


def test_a_pattern_that_the_contract_excludes_is_left_out():
    less = SMALL.properties.model_copy(update={"leave_out": ("negative", "zero")})
    task = SMALL.model_copy(update={"properties": less})
    names = [case.name for case in generated(task, load_reference(SMALL), 1, "full")]
    assert not any("negative" in name or name.endswith(": zero") for name in names)
    assert len(names) >= 40


def test_a_relation_between_sizes_holds():
    held = SMALL.properties.model_copy(update={"holds": ("N - 2 * R",)})
    task = SMALL.model_copy(update={"properties": held})
    for case in generated(task, load_reference(SMALL), 1, "full"):
        rows, width = case.calls[0]["x"].shape
        assert width >= 2 * rows


def test_views_and_sequences_come_where_they_are_allowed():
    cases = list(generated(SMALL, load_reference(SMALL), 1, "full"))
    assert any(not call["x"].flags.c_contiguous for case in cases for call in case.calls)
    repeated = next(case for case in cases if len(case.calls) == 3)
    first, second, third = (call["x"] for call in repeated.calls)
    assert first.shape == second.shape == third.shape and (first != third).sum() == 1


def test_constants_of_the_source_are_found_the_rarest_first(tmp_path):
    (tmp_path / "a.py").write_text("LIMIT = 37.5\nx = [0, 1, 1, 1, 0x40, 1e-3, 2]\ny2 = a1.5\n")
    (tmp_path / "k.cu").write_text("if (n > 4096) x = 2.0f; // 1 1\n")
    found = constants(tmp_path)
    assert set(found) >= {37.5, 64.0, 1e-3, 4096.0, 2.0} and 0.0 not in found
    assert found.index(37.5) < found.index(1.0)
