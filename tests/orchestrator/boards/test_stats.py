"""Statistics against published or hand-computed values."""

import pytest

from orchestrator.boards.stats import (
    Interval,
    bootstrap_mean,
    geometric_mean,
    half_up,
    pass_at_k,
    pass_hat_k,
    sign_test,
    wilson,
)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (8, 10, 0.490162, 0.943318),
        (1, 1, 0.206543, 1.0),
        (0, 5, 0.0, 0.434482),
        (50, 100, 0.403832, 0.596168),
    ],
)
def test_wilson_interval_matches_the_tables(successes, trials, low, high):
    interval = wilson(successes, trials)
    assert interval.low == pytest.approx(low, abs=1e-5)
    assert interval.high == pytest.approx(high, abs=1e-5)


def test_wilson_refuses_an_empty_sample():
    with pytest.raises(ValueError, match="no sample"):
        wilson(0, 0)


def test_pass_at_k_is_the_unbiased_estimate():
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_at_k(10, 3, 2) == pytest.approx(1 - (7 * 6) / (10 * 9))
    assert pass_at_k(10, 3, 8) == 1.0  # eight of ten cannot all be among seven failures


def test_pass_hat_k_asks_for_all_k():
    assert pass_hat_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_hat_k(10, 3, 2) == pytest.approx((3 * 2) / (10 * 9))
    assert pass_hat_k(10, 3, 4) == 0.0


def test_sign_test_is_exact_and_two_sided():
    assert sign_test(8, 2) == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert sign_test(2, 8) == sign_test(8, 2)
    assert sign_test(3, 3) == 1.0
    assert sign_test(0, 0) == 1.0


def test_bootstrap_is_the_same_twice_and_holds_the_mean():
    values = [3.0, -1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
    first = bootstrap_mean(values)
    assert first == bootstrap_mean(values)
    assert first.low < sum(values) / len(values) < first.high


def test_bootstrap_of_equal_differences_has_no_width():
    assert bootstrap_mean([2.0, 2.0, 2.0]) == Interval(2.0, 2.0)


@pytest.mark.parametrize(
    ("value", "rounded"), [(81.5, 82), (88.333, 88), (0.5, 1), (2.5, 3), (-0.5, 0), (-1.5, -1)]
)
def test_halves_round_upwards(value, rounded):
    assert half_up(value) == rounded


def test_intervals_that_touch_overlap():
    assert Interval(1, 2).overlaps(Interval(2, 3))
    assert not Interval(1, 2).overlaps(Interval(2.1, 3))


def test_geometric_mean_has_none_for_a_value_that_is_not_positive():
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert geometric_mean([1.0, 0.0]) is None
    assert geometric_mean([]) is None
