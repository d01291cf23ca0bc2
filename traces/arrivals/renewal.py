"""Renewal processes: independent gaps of one distribution, scaled to mean 1 / rate.

Coefficient of variation (CV) of the gaps: Poisson 1, deterministic 0, Gamma 1/sqrt(shape), Weibull
sqrt(G(1 + 2/k) / G(1 + 1/k)^2 - 1) with shape k. Over long windows the variance of the counts is
CV^2 times their mean. The first arrival comes one whole gap after time 0.
"""

from dataclasses import dataclass
from math import gamma

import numpy as np
from numpy.typing import NDArray

from servegym.traces.arrivals.process import Seed, require_positive
from servegym.traces.streams import stream


@dataclass(frozen=True)
class Poisson:
    """Exponential gaps: arrivals that know nothing of each other."""

    def draw(self, n: int, rate_per_s: float, seed: Seed) -> NDArray[np.float64]:
        """Return n arrival times, s."""
        return np.cumsum(stream(seed, "arrivals").standard_exponential(n)) / rate_per_s


@dataclass(frozen=True)
class Deterministic:
    """One arrival every 1 / rate seconds."""

    def draw(self, n: int, rate_per_s: float, seed: Seed) -> NDArray[np.float64]:
        """Return n arrival times, s; nothing is random."""
        return np.arange(1, n + 1) / rate_per_s


@dataclass(frozen=True)
class Gamma:
    """Gamma gaps. cv: their coefficient of variation; above 1 arrivals come in bursts."""

    cv: float

    def __post_init__(self) -> None:
        """Check cv."""
        require_positive("cv", self.cv)

    def draw(self, n: int, rate_per_s: float, seed: Seed) -> NDArray[np.float64]:
        """Return n arrival times, s."""
        shape = 1.0 / (self.cv * self.cv)
        gaps = stream(seed, "arrivals").standard_gamma(shape, n) / shape
        return np.cumsum(gaps) / rate_per_s


@dataclass(frozen=True)
class Weibull:
    """Weibull gaps. shape: 1 is Poisson, below it arrivals come in bursts."""

    shape: float

    def __post_init__(self) -> None:
        """Check shape."""
        require_positive("shape", self.shape)

    def draw(self, n: int, rate_per_s: float, seed: Seed) -> NDArray[np.float64]:
        """Return n arrival times, s."""
        gaps = stream(seed, "arrivals").weibull(self.shape, n) / gamma(1.0 + 1.0 / self.shape)
        return np.cumsum(gaps) / rate_per_s
