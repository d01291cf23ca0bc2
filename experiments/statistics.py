"""Paired statistics over seeds: what a difference between two systems is worth.

Every system plays the same traces (common random numbers), so seed s gives one difference
d_s = x_s - r_s against the reference, and what the seeds share cancels. Below 30 seeds the
interval of the mean of d is Student's t; from 30 on it is the percentile bootstrap.
Sources: Law, Simulation Modeling and Analysis, 5th ed., 10.2 (paired t); Efron and Tibshirani, An
Introduction to the Bootstrap, 13.3. Left out: corrections for making many comparisons at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Verdict = Literal["better", "worse", "no difference"]
Direction = Literal["lower", "higher", "neither"]
Values = Sequence[float | None] | NDArray[np.float64]

LEVEL = 0.95
BOOTSTRAP_FROM = 30  # values; at 10 a nominal 95 % percentile interval covers only 89 %
RESAMPLES = 10_000
BOOTSTRAP_SEED = 20_240_611  # fixed: the same values always give the same interval


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval, all in the unit of the values.

    n: values it rests on. low, high: None below two values; mean: None without any.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int

    def clipped(self, least: float, most: float) -> "Interval":
        """Return the interval without what the mean cannot be, as a share above 1.

        t intervals are symmetric and know no limits; clipping one never loses a possible mean.
        """
        if self.low is None or self.high is None:
            return self
        return replace(self, low=max(self.low, least), high=min(self.high, most))


def mean_interval(values: Values, level: float = LEVEL) -> Interval:
    """Return the mean of the defined values (not None, not NaN) and its interval.

    t: mean -+ t_quantile((1 + level)/2, n - 1) * s / sqrt(n), s with n - 1 in the denominator.
    bootstrap: the (1 -+ level)/2 quantiles of the means of RESAMPLES draws with replacement.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level = {level}; must be > 0 and < 1")
    known = defined(values)
    n = len(known)
    if n == 0:
        return Interval(None, None, None, 0)
    mean = float(known.mean())
    if n == 1:
        return Interval(mean, None, None, 1)
    if (known == known[0]).all():
        return Interval(float(known[0]), float(known[0]), float(known[0]), n)
    if n >= BOOTSTRAP_FROM:
        low, high = bootstrap_bounds(known, level)
        return Interval(mean, low, high, n)
    half = t_quantile((1.0 + level) / 2.0, n - 1) * float(known.std(ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def paired_difference(values: Values, reference: Values, level: float = LEVEL) -> Interval:
    """Return the interval of the mean of values[s] - reference[s], over seeds where both are known.

    ValueError when the two are not equally long: then they are not pairs.
    """
    if len(values) != len(reference):
        raise ValueError(f"{len(values)} values and {len(reference)} of the reference; no pairs")
    difference = np.array(values, dtype=np.float64) - np.array(reference, dtype=np.float64)
    return mean_interval(difference, level)


def verdict(difference: Interval, better: Direction) -> Verdict | None:
    """Say what an interval of differences shows; `better` says which way the metric improves.

    better or worse only if the whole interval lies on one side of 0; None without an interval, or where neither way is
    better.
    """
    if better == "neither" or difference.low is None or difference.high is None:
        return None
    if difference.low <= 0.0 <= difference.high:
        return "no difference"
    is_lower = difference.high < 0.0
    return "better" if is_lower == (better == "lower") else "worse"


def defined(values: Values) -> NDArray[np.float64]:
    """Return the values that are numbers, float64[n]; None and NaN are left out."""
    array = np.array(values, dtype=np.float64)
    return array[~np.isnan(array)]


def bootstrap_bounds(values: NDArray[np.float64], level: float) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean, the same for the same values."""
    random = np.random.default_rng(BOOTSTRAP_SEED)
    means = values[random.integers(0, len(values), (RESAMPLES, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)


def t_quantile(p: float, df: int) -> float:
    """Return Student's t quantile at probability p, for df >= 1 degrees of freedom.

    Bisection of t_within. ValueError unless 0 < p < 1.
    """
    if not 0.0 < p < 1.0:
        raise ValueError(f"p = {p}; must be > 0 and < 1")
    if df < 1:
        raise ValueError(f"df = {df}; must be >= 1")
    if p < 0.5:
        return -t_quantile(1.0 - p, df)
    inside = 2.0 * p - 1.0
    low, high = 0.0, 1.0
    while t_within(high, df) < inside:
        high *= 2.0
    while low < (middle := (low + high) / 2.0) < high:
        low, high = (middle, high) if t_within(middle, df) < inside else (low, middle)
    return low


def t_within(t: float, df: int) -> float:
    """Return P(|T| <= t) for Student's t with a whole number of degrees of freedom.

    Exact finite sums in theta = atan(t / sqrt(df)): Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    theta = math.atan(t / math.sqrt(df))
    sine, cosine = math.sin(theta), math.cos(theta)
    if df % 2 == 0:
        return sine * cosine_series(cosine, 1, df)
    series = cosine * cosine_series(cosine, 2, df) if df > 1 else 0.0
    return (theta + sine * series) * 2.0 / math.pi


def cosine_series(cosine: float, first: int, df: int) -> float:
    """Return 1 + first/(first+1) c^2 + first(first+2)/((first+1)(first+3)) c^4 + ... to c^(df-2)."""
    term = total = 1.0
    for k in range(first, df - 2, 2):
        term *= cosine * cosine * k / (k + 1)
        total += term
    return total
