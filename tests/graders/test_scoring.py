"""Scores from measurements: marks, weights, caps, fractions, rounding, the median's interval."""

import random
import statistics

import pytest

from graders.base import GradeRequest
from graders.pipeline import RefereeGrader
from graders.roofline import standing
from graders.scoring import score
from graders.timing import ShapeSamples, median_interval
from tasks.loader import load_rubric
from transcripts.records import DeviceState, ItemMeasurement, ShapeTiming

CPU = DeviceState(
    kind="cpu", name="x", hardware="cpu:x", measured_bandwidth_gbs=10.0, measured_gflops=100.0
)


@pytest.fixture(scope="module")
def graded(task):
    """Any grade: its measurements are replaced in each test."""
    folder = task.folder / "submissions" / "wrong"
    return RefereeGrader().grade(GradeRequest(task, folder, tier="quick", correctness_only=True))


def items(passed, total, fraction=None):
    found = [ItemMeasurement(item="edges", measurable=True, passed=passed, total=total)]
    if fraction is not None:
        found.append(ItemMeasurement(item="near-the-roof", measurable=True, value=fraction))
    return tuple(found)


@pytest.mark.parametrize(
    ("passed", "fraction", "points"),
    [
        (4, 0.5, 100.0),  # both full; the judged dimension is left out, not 0
        (4, 0.25, 87.5),  # 3 : 1
        (4, 0.9, 100.0),  # no more than full
        (4, None, 100.0),  # nothing timed: its dimension is left out
        (3, 0.5, 50.0),  # 81.25, capped by the failed critical item
        (1, 0.0, 18.75),  # below the cap
    ],
)
def test_points_are_weighted_over_what_was_measured(passed, fraction, points, task, graded):
    grade = graded.model_copy(update={"items": items(passed, 4, fraction)})
    assert score(task, load_rubric(task), grade).points == pytest.approx(points)


def test_a_failed_critical_item_is_named(task, graded):
    grade = graded.model_copy(update={"items": items(3, 4)})
    assert score(task, load_rubric(task), grade).capped_by == ("edges",)


def test_unmeasurable_is_not_zero(task, graded):
    why = ItemMeasurement(item="edges", measurable=False, detail="no adapter fits")
    scored = score(task, load_rubric(task), graded.model_copy(update={"items": (why,)}))
    assert scored.points is None and scored.capped_by == ()
    assert scored.items[0].state == "not measurable" and scored.items[0].detail == why.detail


def test_fractions_are_of_the_regimes_ceiling(task):
    shape = task.shapes[0]  # 64 x 4096 floats: 1.05 MB in, 0.26 MFLOP
    stands = standing(task, shape, 0.2097152, CPU)
    assert stands.unit == "GB/s" and stands.achieved == pytest.approx(5.0, rel=1e-3)
    assert stands.score_fraction == pytest.approx(0.5, rel=1e-3)
    assert stands.roof_fraction == pytest.approx(0.5, rel=1e-3)


H200 = DeviceState(
    kind="cuda",
    name="NVIDIA H200",
    hardware="H200",
    measured_bandwidth_gbs=4000.0,
    measured_gflops=50e3,
    measured_gflops_by_dtype={"bfloat16": 700e3},
)


def timed(task, grade, device, milliseconds):
    timings = tuple(
        ShapeTiming(
            shape=shape.name,
            method="referee_clock",
            certified=True,
            calls=9,
            median_ms=ms,
            ci_low_ms=ms,
            ci_high_ms=ms,
            min_ms=ms,
        )
        for shape, ms in zip(task.shapes, milliseconds, strict=True)
    )
    return grade.model_copy(update={"timings": timings, "device": device})


def test_a_gpu_stands_against_its_datasheet_and_against_what_it_was_measured_to_reach(task):
    shape = task.shapes[0]
    stands = standing(task, shape, 0.001, H200)
    assert stands.achieved == pytest.approx(1048.8, rel=1e-3)
    assert stands.score_fraction == pytest.approx(stands.achieved / 4800)
    assert stands.measured_fraction == pytest.approx(stands.achieved / 4000)


@pytest.mark.parametrize(
    ("dtype", "reached"),
    [("bfloat16", 700e3), ("float16", 700e3), ("float32", 50e3), ("float8_e4m3", None)],
)
def test_compute_is_held_against_the_product_of_its_own_dtype(dtype, reached, task):
    by_compute = task.model_copy(update={"regime": "compute"})
    shape = task.shapes[0].model_copy(update={"dtype": dtype})
    stands = standing(by_compute, shape, 1.0, H200)
    wanted = reached and pytest.approx(stands.achieved / reached)
    assert stands.measured_fraction == wanted
    assert stands.score_fraction is not None


def test_a_gpu_without_a_measured_ceiling_has_no_measured_fraction(task, graded):
    bare = H200.model_copy(update={"measured_bandwidth_gbs": None})
    scored = score(task, None, timed(task, graded, bare, (0.001, 0.001)))
    assert scored.measured_fraction is None and scored.peak_fraction is not None


def test_on_a_cpu_the_measured_ceiling_is_the_peak(task, graded):
    scored = score(task, None, timed(task, graded, CPU, (0.2, 0.4)))
    assert scored.measured_fraction == pytest.approx(scored.peak_fraction)


def test_the_peak_fraction_is_the_geometric_mean_over_shapes(task, graded):
    scored = score(task, None, timed(task, graded, CPU, (0.2, 0.4)))
    fractions = [shape.peak_fraction for shape in scored.shapes]
    assert scored.peak_fraction == pytest.approx(statistics.geometric_mean(fractions))
    assert scored.points is None


def test_the_medians_interval_covers_it_as_often_as_it_says():
    rng = random.Random(7)
    covered = 0
    for _ in range(2000):
        low, high = median_interval([rng.expovariate(1.0) for _ in range(25)])
        covered += low <= 0.6931 <= high
    assert 0.94 <= covered / 2000 <= 0.98


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_samples_give_the_whole_range(n):
    assert median_interval(list(range(n))) == (0, n - 1)


def test_work_put_off_to_few_calls_shows():
    even, late = [9.0, 1.0, 1.1, 0.9, 1.0], [9.0, 0.1, 0.1, 0.1, 8.0]
    begins = [0, 5, 10]
    assert ShapeSamples("s", even * 3, begins).deferred == pytest.approx(1.0, abs=0.05)
    assert ShapeSamples("s", late * 3, begins).deferred > 10


def test_a_disturbed_call_is_no_work_put_off():
    disturbed = [1.0] * 15
    disturbed[3] = disturbed[6] = disturbed[12] = 90.0
    assert ShapeSamples("s", disturbed, [0, 5, 10]).deferred == pytest.approx(1.0)


def test_calls_without_sequences_put_nothing_off():
    assert ShapeSamples("s", [1.0, 50.0, 1.0], begins=[0, 1, 2]).deferred == 1.0
