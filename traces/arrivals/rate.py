"""Poisson processes whose rate changes with time: drifting, diurnal, replayed, modulated.

Exact, by time change: with E_1 < E_2 < ... the arrivals of a unit Poisson process and L(t) the
integral of the rate up to t, the arrivals are L^-1(E_i). Rates are multiples of the mean rate.
Source of the phases in Modulated: surrogate data (Theiler et al., Physica D 58, 1992).
"""

from dataclasses import dataclass
from math import pi
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servegym.traces.arrivals.process import (
    Seed,
    require_positive,
    require_rates,
    require_share,
)
from servegym.traces.streams import stream

BISECTIONS = 60


def unit_arrivals(n: int, seed: Seed) -> NDArray[np.float64]:
    """Return n arrivals of a Poisson process of rate 1."""
    return np.cumsum(stream(seed, "arrivals").standard_exponential(n))


def replay(
    units: NDArray[np.float64], rates: NDArray[np.float64], window_s: float, rate_per_s: float
) -> NDArray[np.float64]:
    """Return L^-1(units) for a rate that is rates[k] / mean(rates) * rate_per_s in window k.

    After the last window the rates start again.
    """
    integral = np.concatenate([[0.0], np.cumsum(rates / rates.mean())]) * window_s * rate_per_s
    rounds, inside = np.divmod(units, integral[-1])
    edges = window_s * np.arange(len(integral))
    return rounds * edges[-1] + np.interp(inside, integral, edges)


@dataclass(frozen=True)
class Drift:
    """A rate that goes linearly from start to end times the mean over over_s, then stays.

    Its mean over the drift is the rate asked for when start + end = 2.
    """

    over_s: float
    start: float = 0.5
    end: float = 1.5

    def __post_init__(self) -> None:
        """Check every field; a rate of 0 at the end would never bring another request."""
        require_positive("over_s", self.over_s)
        require_positive("start", self.start)
        require_positive("end", self.end)

    def draw(self, n: int, rate_per_s: float, seed: Seed) -> NDArray[np.float64]:
        """Return n arrival times, s: the root of start*t + (end - start)*t^2 / (2 over_s) = E."""
        units = unit_arrivals(n, seed) / rate_per_s
        at_end = self.over_s * (self.start + self.end) / 2.0
        within = np.minimum(units, at_end)
        root = np.sqrt(self.start**2 + 2.0 * (self.end - self.start) * within / self.over_s)
        return 2.0 * within / (self.start + root) + (units - within) / self.end


@dataclass(frozen=True)
class Diurnal:
    """A rate of (1 + amplitude * sin(2 pi t / period_s)) times the mean; it peaks at period / 4."""

    period_s: float = 86_400.0
    amplitude: float = 0.5

    def __post_init__(self) -> None:
        """Check every field."""
        require_positive("period_s", self.period_s)
        require_share("amplitude", self.amplitude)

    def draw(self, n: int, rate_per_s: float, seed: Seed) -> NDArray[np.float64]:
        """Return n arrival times, s, by bisection between the bounds of L(t) - t."""
        units = unit_arrivals(n, seed) / rate_per_s
        swing = self.amplitude * self.period_s / (2.0 * pi)
        low, high = np.maximum(units - 2.0 * swing, 0.0), units.copy()
        for _ in range(BISECTIONS):
            middle = (low + high) / 2.0
            is_early = middle + swing * (1.0 - np.cos(2.0 * pi * middle / self.period_s)) < units
            low, high = np.where(is_early, middle, low), np.where(is_early, high, middle)
        return high


@dataclass(frozen=True)
class ReplayedRate:
    """A rate that is constant in windows of window_s, as recorded; then from the start again."""

    window_s: float
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check every field."""
        require_positive("window_s", self.window_s)
        require_rates("rates", self.rates)

    @classmethod
    def of(cls, arrival_s: ArrayLike, window_s: float) -> Self:
        """Return the rates of recorded arrivals, req/s, in their whole windows."""
        return cls(window_s, tuple((window_counts(arrival_s, window_s) / window_s).tolist()))

    def draw(self, n: int, rate_per_s: float, seed: Seed) -> NDArray[np.float64]:
        """Return n arrival times, s."""
        return replay(unit_arrivals(n, seed), np.array(self.rates), self.window_s, rate_per_s)


@dataclass(frozen=True)
class Modulated:
    """A rate that wanders as a recorded one did: its spectrum kept, its phases drawn anew.

    In window j of n_windows it is 1 + sum_k amplitudes[k-1] * cos(2 pi k j / n_windows + phase_k)
    times the mean, at least 0; then the same again.
    """

    window_s: float
    n_windows: int
    amplitudes: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check every field."""
        require_positive("window_s", self.window_s)
        require_positive("n_windows", self.n_windows)
        require_rates("amplitudes", (*self.amplitudes, 1.0))

    def draw(self, n: int, rate_per_s: float, seed: Seed) -> NDArray[np.float64]:
        """Return n arrival times, s."""
        rates = self.draw_rates(seed)
        return replay(unit_arrivals(n, seed), rates, self.window_s, rate_per_s)

    def draw_rates(self, seed: Seed) -> NDArray[np.float64]:
        """Return the rate in each window, as multiples of the mean, before the cut at 0 moved it."""
        k = np.arange(1, len(self.amplitudes) + 1)
        phases = 2.0 * pi * stream(seed, "arrival phases").random(len(k))
        turns = np.outer(np.arange(self.n_windows), k) / self.n_windows
        return np.maximum(1.0 + np.cos(2.0 * pi * turns + phases) @ np.array(self.amplitudes), 0.0)


def window_counts(arrival_s: ArrayLike, window_s: float) -> NDArray[np.int64]:
    """Return the arrivals in each whole window of window_s, counted from the first arrival."""
    times = np.asarray(arrival_s, dtype=np.float64)
    require_positive("window_s", window_s)
    if not len(times):
        return np.zeros(0, np.int64)
    windows = ((times - times[0]) // window_s).astype(np.int64)
    return np.bincount(windows)[: int((times[-1] - times[0]) // window_s)]
