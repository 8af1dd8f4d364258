"""Comparison: what passes, what does not, and with which word."""

import numpy as np
import pytest

from graders.closeness import NOISE, Bounds, bounds, compare, compare_all
from graders.differences import PIECE
from tasks.case import GATED_FROM, Case
from tasks.impostors import accepts
from tasks.loader import load_task, read_task
from tasks.rawfloats import BITS, decoded, encoded, eps
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


RAW = ("bfloat16", "float8_e4m3", "float8_e5m2")


@pytest.mark.parametrize("raw", RAW)
def test_raw_bits_are_compared_as_the_floats_that_they_are(raw):
    values = np.linspace(-2, 2, 60)
    bits = encoded(raw, values)
    limits = Bounds(atol=0.0, rtol=eps(raw), rms_ratio=eps(raw))
    assert compare("y", bits, bits, limits, raw).passed
    assert compare("y", bits, values, limits, raw).passed  # against what was not rounded
    assert compare("y", bits ^ bits.dtype.type(1), values, limits, raw).max_rel_error < 2 * eps(raw)
    sign = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    turned = compare("y", bits ^ sign, bits, limits, raw)
    assert turned.word is GradeResult.WRONG and turned.max_abs_error == pytest.approx(4, rel=0.1)
    assert compare("y", values.astype(np.float32), values, limits, raw).word is GradeResult.WRONG


@pytest.mark.parametrize("raw", RAW)
def test_bits_of_nan_are_nan(raw):
    nan = encoded(raw, np.array([np.nan, 1.0]))
    limits = Bounds(1.0, 1.0, None)
    assert np.isnan(decoded(raw, nan)).tolist() == [True, False]
    assert compare("y", nan, encoded(raw, np.ones(2)), limits, raw).word is GradeResult.NAN
    assert compare("y", nan, nan, limits, raw).passed


@pytest.mark.parametrize("raw", RAW)
def test_every_number_survives_its_bits_and_a_tie_goes_to_the_even_one(raw):
    bits = np.arange(1 << (8 * BITS[raw]().itemsize)).astype(BITS[raw])
    values = decoded(raw, bits)
    kept = np.isfinite(values)
    assert np.array_equal(encoded(raw, values[kept]), bits[kept])
    one = int(encoded(raw, np.ones(1))[0])
    between = (decoded(raw, np.array([one, one + 1], BITS[raw])).astype(float)).mean()
    assert int(encoded(raw, np.array([between]))[0]) == one + one % 2


def test_float8_e4m3_ends_at_448_without_an_infinity():
    values = decoded("float8_e4m3", np.arange(256, dtype=np.uint8))
    assert np.nanmax(values) == 448 and np.isnan(values).sum() == 2
    assert decoded("float8_e4m3", encoded("float8_e4m3", np.array([1e9, -1e9]))).tolist() == [
        448,
        -448,
    ]
    assert values[1] == 2.0**-9


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_of_every_width_are_compared_in_double_precision(dtype):
    ref = np.array([60000.0, -1.0, 0.25], dtype)
    near = Bounds(0.0, 2 * float(np.finfo(dtype).eps), None)
    assert compare("y", np.nextafter(ref, dtype(0)), ref, near).passed
    far = compare("y", -ref, ref, near)
    assert far.worst_index == (0,) and far.max_abs_error == pytest.approx(120000)


def test_booleans_are_exact_and_counted():
    ref = np.array([[True, False], [True, True]])
    close = compare("m", ~ref, ref, BOUNDS)
    assert (close.bad_elements, close.worst_index, close.max_abs_error) == (4, (0, 0), 1.0)
    assert compare("m", ref.astype(np.uint8), ref, BOUNDS).word is GradeResult.WRONG


def test_the_integer_that_is_farthest_off_is_named():
    ref = np.array([[5, 7, 2]])
    close = compare("i", np.array([[5, 8, -90]]), ref, BOUNDS)
    assert close.worst_index == (0, 2) and close.max_abs_error == 92 and close.max_rel_error == 46
    assert "-90 where 2" in close.detail


def test_noise_of_a_generated_case_is_allowed_on_top(library):
    task = read_task(library / "tuple-moments")
    wanted = np.ones(100, np.float32)
    case = Case("c", "property", "0", {}, [], [], noise={"0": (0.01, 0.005)})
    limits, plain = bounds(task, case, wanted, "0"), bounds(task, None, wanted, "0")
    assert limits.atol == pytest.approx(plain.atol + NOISE * 0.01)
    assert limits.rms_ratio == pytest.approx(plain.rms_ratio + NOISE * 0.005)
    assert bounds(task, case, wanted, "1") == plain


def test_a_leaf_takes_the_tolerance_of_what_its_bits_are(library):
    task = read_task(library / "half-scale")
    ref = np.linspace(1, 2, 80)
    near, far = (encoded("bfloat16", ref * by) for by in (1.001, 1.1))
    assert compare_all(task, None, {"y": near}, {"y": ref}, {})[0].passed
    assert compare_all(task, None, {"y": far}, {"y": ref}, {})[0].word is GradeResult.WRONG
    assert accepts(task, near, encoded("bfloat16", ref), "bfloat16")
    assert not accepts(task, far, encoded("bfloat16", ref), "bfloat16")


def test_arrays_of_many_pieces_are_compared_as_a_whole():
    rng = np.random.default_rng(1)
    shape = (3, PIECE // 2 + 5)
    ref = rng.standard_normal(shape)
    out = ref + 1e-9 * rng.standard_normal(shape)
    out[0, 7], out[2, -1], out[1, 3] = ref[0, 7] + 0.5, ref[2, -1] - 0.75, ref[1, 3] + 0.75
    close = compare("y", out, ref, Bounds(1e-6, 0.0, None))
    assert close.bad_elements == 3 and close.worst_index == (1, 3)
    assert close.max_abs_error == pytest.approx(0.75)
    error = np.sqrt(np.mean((out - ref) ** 2)) / np.sqrt(np.mean(ref**2))
    assert close.rms_ratio == pytest.approx(error, rel=1e-12)
    assert close.max_rel_error == pytest.approx((np.abs(out - ref) / np.abs(ref)).max())


@pytest.mark.parametrize("at", [(0, 0), (2, 11), (2, PIECE - 1)])
def test_a_stray_value_in_any_piece_is_found(at):
    ref = np.zeros((3, PIECE))
    out = ref.copy()
    out[at] = np.nan
    close = compare("y", out, ref, Bounds(1.0, 0.0, None))
    assert (close.word, close.worst_index) == (GradeResult.NAN, at) and close.bad_elements == 1


def test_references_that_do_not_lie_together_are_compared_by_place():
    ref = np.arange(24.0).reshape(4, 6).T
    out = np.ascontiguousarray(ref)
    assert compare("y", out, ref, Bounds(0.0, 0.0, None)).passed
    out[5, 1] = -1
    assert compare("y", out, ref, Bounds(0.0, 0.0, None)).worst_index == (5, 1)
