"""Phases: gaps uniform between two bounds, which change at given requests, with a pause between.

The arrivals of load tests written as a loop with a random sleep. In the test the pause begins when
the cluster is empty; a trace cannot know when that is, so pause_s is given.
Source: DriftSched's workload (its phases and bounds are in servegym.traces.driftsched).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from servegym.traces.arrivals.process import Seed, require_positive
from servegym.traces.streams import stream


@dataclass(frozen=True)
class UniformPhases:
    """Phase p has sizes[p] requests with gaps in U(least_s[p], most_s[p]); the last goes on."""

    sizes: tuple[int, ...]
    least_s: tuple[float, ...]
    most_s: tuple[float, ...]
    pause_s: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        if not len(self.sizes) == len(self.least_s) == len(self.most_s) > 0:
            raise ValueError("sizes, least_s and most_s must be as many, and at least one")
        for p, (least, most) in enumerate(zip(self.least_s, self.most_s, strict=True)):
            require_positive(f"sizes[{p}]", self.sizes[p])
            require_positive(f"most_s[{p}]", most)
            if not 0.0 <= least <= most:
                raise ValueError(f"least_s[{p}] = {least}; must be in [0, most_s[{p}] = {most}]")
        if not (np.isfinite(self.pause_s) and self.pause_s >= 0.0):
            raise ValueError(f"pause_s = {self.pause_s}; must be finite and >= 0")

    @property
    def rate_per_s(self) -> float:
        """The mean rate over all phases and pauses, req/s."""
        middles = (np.array(self.least_s) + np.array(self.most_s)) / 2.0
        span_s = float(middles @ np.array(self.sizes)) + self.pause_s * (len(self.sizes) - 1)
        return sum(self.sizes) / span_s

    def draw(self, n: int, rate_per_s: float, seed: Seed) -> NDArray[np.float64]:
        """Return n arrival times, s: as published, all gaps scaled to the mean rate asked for."""
        starts = np.cumsum((0, *self.sizes[:-1]))
        phase = np.searchsorted(starts, np.arange(n), side="right") - 1
        least, most = np.array(self.least_s)[phase], np.array(self.most_s)[phase]
        gaps = least + (most - least) * stream(seed, "arrivals").random(n)
        gaps[starts[1:][starts[1:] < n]] += self.pause_s
        return np.cumsum(gaps) * (self.rate_per_s / rate_per_s)
