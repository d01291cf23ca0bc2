"""Statistics of paired differences: against scipy, and against numbers worked by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from servegym.experiments.statistics import (
    Interval,
    mean_interval,
    paired_difference,
    t_quantile,
    t_within,
    verdict,
)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 10, 28, 29, 99])
@pytest.mark.parametrize("p", [0.005, 0.025, 0.3, 0.5, 0.9, 0.975, 0.995, 0.9995])
def test_t_quantile_agrees_with_scipy(df: int, p: float):
    assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-10, abs=1e-12)


def test_t_quantile_of_textbook_tables():
    # One degree of freedom is the Cauchy distribution: tan(pi * (p - 1/2)).
    assert t_quantile(0.975, 1) == pytest.approx(math.tan(math.pi * 0.475), rel=1e-12)
    assert round(t_quantile(0.975, 9), 3) == 2.262


def test_t_within_has_no_mass_at_zero_and_all_of_it_far_out():
    for df in (1, 2, 7, 8):
        assert t_within(0.0, df) == 0.0
        assert t_within(1e9, df) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize(
    ("p", "df", "message"), [(0.0, 3, "p = 0.0"), (1.0, 3, "p = 1.0"), (0.9, 0, "df = 0")]
)
def test_t_quantile_refuses_what_has_no_quantile(p: float, df: int, message: str):
    with pytest.raises(ValueError, match=message):
        t_quantile(p, df)


def test_mean_interval_worked_by_hand():
    # 2, 4, 4, 6: mean 4, s^2 = (4 + 0 + 0 + 4)/3, s/sqrt(4) = sqrt(8/3)/2 = .81650; t(.975, 3) = 3.18245.
    interval = mean_interval([2.0, 4.0, 4.0, 6.0])
    assert interval.mean == 4.0 and interval.n == 4
    assert interval.low == pytest.approx(4 - 3.18245 * 0.81650, abs=1e-4)
    assert interval.high == pytest.approx(4 + 3.18245 * 0.81650, abs=1e-4)


def test_mean_interval_below_thirty_is_scipys_t_interval():
    values = np.random.default_rng(1).exponential(size=29)
    low, high = stats.t.interval(0.9, 28, values.mean(), stats.sem(values))
    interval = mean_interval(values, level=0.9)
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-10)


def test_from_thirty_values_the_interval_is_the_percentile_bootstrap():
    values = np.random.default_rng(2).exponential(size=30)
    interval = mean_interval(values)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(3)
    ).confidence_interval
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=0.02)
    t_low, _ = stats.t.interval(0.95, 29, values.mean(), stats.sem(values))
    assert interval.low is not None and interval.low > t_low + 0.01  # skewed: t reaches lower
    assert mean_interval(values) == interval  # the same values, the same interval


def test_t_interval_at_ten_seeds_covers_95_percent_of_normal_samples():
    random = np.random.default_rng(4)
    covered = 0
    for sample in random.normal(1.0, 2.0, (2_000, 10)):
        interval = mean_interval(sample)
        assert interval.low is not None and interval.high is not None
        covered += interval.low <= 1.0 <= interval.high
    assert 0.935 < covered / 2_000 < 0.965  # three standard errors


def test_undefined_values_are_left_out_and_few_give_no_interval():
    assert mean_interval([None, float("nan")]) == Interval(None, None, None, 0)
    assert mean_interval([None, 3.0]) == Interval(3.0, None, None, 1)
    assert mean_interval([3.0, None, 3.0]) == Interval(3.0, 3.0, 3.0, 2)


def test_pairing_removes_what_seeds_share():
    seeds = np.array([10.0, 50.0, 30.0, 80.0])  # hard and easy traces
    difference = paired_difference(list(seeds + [1.0, 1.1, 0.9, 1.0]), list(seeds))
    assert difference.mean == pytest.approx(1.0)
    assert verdict(difference, "lower") == "worse"
    alone = mean_interval(seeds)
    assert alone.low is not None and alone.high is not None and alone.high - alone.low > 90


def test_pairs_with_an_undefined_side_do_not_count():
    assert paired_difference([1.0, None, 5.0], [0.0, 7.0, None]) == Interval(1.0, None, None, 1)


def test_unequal_lengths_are_no_pairs():
    with pytest.raises(ValueError, match="2 values and 1 of the reference"):
        paired_difference([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("low", "high", "better", "expected"),
    [
        (-2.0, -1.0, "lower", "better"),
        (-2.0, -1.0, "higher", "worse"),
        (1.0, 2.0, "lower", "worse"),
        (1.0, 2.0, "higher", "better"),
        (-1.0, 1.0, "lower", "no difference"),
        (0.0, 1.0, "lower", "no difference"),
        (-1.0, 0.0, "higher", "no difference"),
        (0.0, 0.0, "lower", "no difference"),
        (None, None, "lower", None),
    ],
)
def test_verdict_needs_the_whole_interval_on_one_side_of_zero(low, high, better, expected):
    assert verdict(Interval(0.0, low, high, 10), better) == expected


@pytest.mark.parametrize("level", [0.0, 1.0, float("nan")])
def test_a_level_outside_zero_and_one_is_refused(level: float):
    with pytest.raises(ValueError, match="level = "):
        mean_interval([1.0, 2.0], level)
