"""Comparison: what passes, what does not, and with which word."""

import numpy as np
import pytest

from graders.closeness import Bounds, bounds, compare
from tasks.case import GATED_FROM, Case
from tasks.loader import load_task
from tasks.impostors import accepts
from transcripts.words import GradeResult

BOUNDS = Bounds(atol=1e-6, rtol=1e-5, rms_ratio=1e-5)
REF = np.linspace(-2, 3, 60, dtype=np.float32).reshape(5, 12)


def word(out, ref=REF, bounds=BOUNDS):
    return compare("y", out, ref, bounds).word


def changed(at, value):
    out = REF.copy()
    out[at] = value
    return out


def test_equal_and_nearly_equal_pass():
    assert word(REF.copy()) is GradeResult.PASS
    assert word(REF * np.float32(1 + 1e-6)) is GradeResult.PASS


@pytest.mark.parametrize(
    "out",
    [
        REF.astype(np.float64),
        REF[:, :-1],
        REF.reshape(-1),
        np.zeros_like(REF),
        changed((3, 7), 9.0),
        changed((3, 7), REF[3, 7] + 1e-3),
    ],
)
def test_other_dtype_shape_or_value_is_wrong(out):
    assert word(out) is GradeResult.WRONG


def test_the_worst_element_is_named():
    out = changed((3, 7), 9.0)
    out[1, 1] += 0.5
    close = compare("y", out, REF, BOUNDS)
    assert (close.worst_index, close.bad_elements) == ((3, 7), 2)
    assert close.max_abs_error == pytest.approx(9.0 - REF[3, 7])
    assert "9.0 where" in close.detail


def test_non_finite_is_allowed_only_where_the_reference_is():
    ref = changed((0, 0), np.inf)
    assert word(ref.copy(), ref) is GradeResult.PASS
    assert word(changed((0, 0), -np.inf), ref) is GradeResult.WRONG
    assert word(changed((0, 0), np.nan), ref) is GradeResult.WRONG
    assert word(changed((0, 0), 1e30), ref) is GradeResult.WRONG
    assert word(changed((2, 2), np.nan)) is GradeResult.NAN
    assert word(changed((2, 2), np.inf)) is GradeResult.NAN
    with_nan = changed((1, 1), np.nan)
    assert word(with_nan.copy(), with_nan) is GradeResult.PASS


def test_the_norm_catches_what_a_wide_tolerance_lets_through():
    small = REF * np.float32(1e-3)
    wide = Bounds(atol=0.1, rtol=0.1, rms_ratio=None)
    assert word(np.zeros_like(small), small, wide) is GradeResult.PASS
    gated = Bounds(atol=0.1, rtol=0.1, rms_ratio=0.05)
    close = compare("y", np.zeros_like(small), small, gated)
    assert close.word is GradeResult.WRONG and close.rms_ratio == pytest.approx(1.0)


def test_integers_are_exact():
    ref = np.arange(6)
    assert word(ref.copy(), ref) is GradeResult.PASS
    close = compare("i", ref[::-1].copy(), ref, BOUNDS)
    assert close.word is GradeResult.WRONG and close.bad_elements == 6


def test_wild_values_stay_finite_in_the_report():
    close = compare("y", np.full_like(REF, 1e300, dtype=np.float64), REF.astype(np.float64), BOUNDS)
    assert close.word is GradeResult.WRONG and close.rms_ratio is None


def test_an_empty_output_passes():
    assert word(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)) is GradeResult.PASS


@pytest.mark.parametrize("ref", [np.zeros(4, np.float32), np.zeros((), np.float64)])
def test_a_reference_of_zeros_is_held_by_atol(ref):
    assert word(ref + ref.dtype.type(1e-7), ref) is GradeResult.PASS
    assert word(ref + ref.dtype.type(1e-3), ref) is GradeResult.WRONG


def test_the_tasks_gate_holds_from_a_number_of_elements_and_a_cases_own_always():
    task = load_task("kv-cache")
    few, many = (np.ones(n, dtype=np.float32) for n in (GATED_FROM - 1, GATED_FROM))
    assert bounds(task, None, few).rms_ratio is None
    assert bounds(task, None, many).rms_ratio == task.gate.rms_ratio["float32"]
    own = Case("c", "property", "0", {}, [], [], rms_ratio=0.5)
    assert bounds(task, own, few).rms_ratio == 0.5


def test_an_honest_result_near_a_cancellation_passes_the_tasks_bounds():
    task = load_task("kv-cache")
    ref = np.array([1e-6], dtype=np.float32)
    honest = ref + np.float32(5e-8)  # the rounding of terms near 1 that cancel
    assert compare("out", honest, ref, bounds(task, None, ref)).word is GradeResult.PASS


@pytest.mark.parametrize("size", [GATED_FROM - 1, GATED_FROM])
def test_a_check_of_the_task_judges_by_the_same_rule(size):
    task = load_task("kv-cache")
    wanted = np.full(size, 1e-7, np.float32)  # far below atol, so that only the gate refuses zeros
    got = np.zeros_like(wanted)
    limits = bounds(task, None, wanted)
    assert accepts(task, got, wanted) == compare("y", got, wanted, limits).passed
    assert accepts(task, got, wanted) == (size < GATED_FROM)
