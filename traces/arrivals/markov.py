"""Poisson processes whose rate jumps with a hidden Markov chain: on-off, and MMPP in general.

State k lasts an exponential time of mean stay_s[k], then state j follows with probability
jumps[k][j]; arrivals in it are Poisson with rates[k], a multiple of the mean rate. For two states
IoD(w) = 1 + 2 (l1-l2)^2 s1 s2 / (s^2 (l1 s2 + l2 s1)) * (1 - (1 - exp(-s w)) / (s w)), with rates
l1, l2, s1 = 1/stay_1, s2 = 1/stay_2, s = s1 + s2 (Fischer and Meier-Hellstern, 1993).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from servegym.traces.arrivals.process import Seed, require_positive, require_rates
from servegym.traces.arrivals.rate import unit_arrivals
from servegym.traces.streams import stream

DRAWN_AT_ONCE = 1024


@dataclass(frozen=True)
class Mmpp:
    """A Markov-modulated Poisson process; it starts in its stationary state.

    rates: of each state, in any unit; they are scaled to the mean rate asked for. stay_s: mean time
    in each state. jumps: probabilities of the next state, a row for each state, 0 on the diagonal.
    """

    rates: tuple[float, ...]
    stay_s: tuple[float, ...]
    jumps: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        """Check every field."""
        require_rates("rates", self.rates)
        n = len(self.rates)
        if len(self.stay_s) != n or [len(row) for row in self.jumps] != [n] * n:
            raise ValueError(f"{n} rates need {n} stay_s and {n} rows of {n} jumps")
        for k, (stay_s, row) in enumerate(zip(self.stay_s, self.jumps, strict=True)):
            require_positive(f"stay_s[{k}]", stay_s)
            if min(row) < 0.0 or row[k] != 0.0 or abs(sum(row) - 1.0) > 1e-6:
                rule = "must be >= 0, sum to 1 and be 0 for the state itself"
                raise ValueError(f"jumps[{k}] = {row}; {rule}")

    def occupancy(self) -> NDArray[np.float64]:
        """Return the long-run share of time in each state."""
        n = len(self.rates)
        flow = (np.array(self.jumps) - np.eye(n)) / np.array(self.stay_s)[:, None]
        system = np.vstack([flow.T, np.ones(n)])
        shares = np.linalg.lstsq(system, np.concatenate([np.zeros(n), [1.0]]), rcond=None)[0]
        return shares.astype(np.float64)

    def draw(self, n: int, rate_per_s: float, seed: Seed) -> NDArray[np.float64]:
        """Return n arrival times, s."""
        units = unit_arrivals(n, seed)
        occupancy = self.occupancy()
        rates = np.array(self.rates) * rate_per_s / (occupancy @ np.array(self.rates))
        last = units[-1] if n else 0.0
        integral, edges = [0.0], [0.0]
        for state, stay_s in self.path(occupancy, seed):
            if integral[-1] > last:
                break
            integral.append(integral[-1] + float(rates[state]) * stay_s)
            edges.append(edges[-1] + stay_s)
        return np.interp(units, integral, edges)

    def path(self, occupancy: NDArray[np.float64], seed: Seed) -> Iterator[tuple[int, float]]:
        """Yield states with the time spent in each, s, without end."""
        random = stream(seed, "arrival states")
        follows = np.cumsum(self.jumps, axis=1)
        state = pick(np.cumsum(occupancy), random.random())
        while True:
            stays = random.standard_exponential(DRAWN_AT_ONCE).tolist()
            for stay, level in zip(stays, random.random(DRAWN_AT_ONCE).tolist(), strict=True):
                yield state, stay * self.stay_s[state]
                state = pick(follows[state], level)


def pick(cumulative: NDArray[np.float64], level: float) -> int:
    """Return the index whose share of [0, 1) holds the level."""
    return int(np.searchsorted(cumulative, level * cumulative[-1], side="right"))


@dataclass(frozen=True)
class OnOff:
    """Poisson bursts of mean length on_s, with silences of mean length off_s between them."""

    on_s: float
    off_s: float

    def __post_init__(self) -> None:
        """Check every field."""
        require_positive("on_s", self.on_s)
        require_positive("off_s", self.off_s)

    def draw(self, n: int, rate_per_s: float, seed: Seed) -> NDArray[np.float64]:
        """Return n arrival times, s; within a burst the rate is (on_s + off_s) / on_s times the mean."""
        chain = Mmpp((1.0, 0.0), (self.on_s, self.off_s), ((0.0, 1.0), (1.0, 0.0)))
        return chain.draw(n, rate_per_s, seed)
