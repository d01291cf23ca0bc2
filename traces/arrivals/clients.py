"""Clients: the merged arrivals of tenants, each a renewal process whose rate and shape change.

In window w client c draws unit-mean gaps, Gamma or Weibull of its own shape, and divides them by
its rate there. A gap that crosses into the next window goes on at that window's rate. Each client
starts in equilibrium (the residual of a gap chosen by its length), or a bursty one would send too
much at first. Source: ServeGen (Xiang et al., arXiv 2505.09999), section on client decomposition.
"""

from dataclasses import dataclass
from functools import cached_property
from math import gamma

import numpy as np
from numpy.typing import NDArray

from servegym.traces.arrivals.process import Seed, require_positive
from servegym.traces.labels import Labels
from servegym.traces.streams import stream

GAMMA, WEIBULL, SILENT = "G", "W", "-"
Shape = tuple[str, float]


@dataclass(frozen=True)
class Clients:
    """Tenants with their rates, window by window; after the last window the first comes again.

    names: of the clients. rates: req/s, a row for each client. families: for each client one letter
    a window: G (Gamma), W (Weibull) or - (silent). shapes: of the gaps, 0 where silent.
    """

    window_s: float
    names: tuple[str, ...]
    families: tuple[str, ...]
    rates: tuple[tuple[float, ...], ...]
    shapes: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        """Check that the tables agree, and that something arrives."""
        require_positive("window_s", self.window_s)
        sizes = {len(row) for table in (self.families, self.rates, self.shapes) for row in table}
        counts = {len(self.names), len(self.families), len(self.rates), len(self.shapes)}
        if len(sizes) != 1 or len(counts) != 1:
            raise ValueError(f"tables of {counts} clients and {sizes} windows; must be of one size")
        require_positive("rate_per_s", self.rate_per_s)

    @cached_property
    def rate_per_s(self) -> float:
        """The mean rate of all clients over all windows, req/s."""
        return float(np.mean(np.sum(self.rates, axis=0)))

    def draw(self, n: int, rate_per_s: float, seed: Seed) -> NDArray[np.float64]:
        """Return n arrival times, s: as recorded, all gaps scaled to the mean rate asked for."""
        return self.draw_labelled(n, rate_per_s, seed)[0]

    def draw_labelled(
        self, n: int, rate_per_s: float, seed: Seed
    ) -> tuple[NDArray[np.float64], Labels]:
        """Return n arrival times, s, and whose they are. They start in a window drawn at random."""
        n_windows = len(self.families[0])
        first = int(stream(seed, "arrival start").integers(n_windows))
        clients = [Client(self, c, seed) for c in range(len(self.names))]
        times, codes, window = [np.zeros(0)], [np.zeros(0, np.int64)], 0
        while sum(map(len, times)) < n:
            sent = [client.send((first + window) % n_windows) for client in clients]
            merged = np.concatenate(sent)
            order = np.argsort(merged, kind="stable")
            times.append((window + merged[order]) * self.window_s)
            codes.append(np.repeat(np.arange(len(sent)), [len(s) for s in sent])[order])
            window += 1
        scale = self.rate_per_s / rate_per_s
        return np.concatenate(times)[:n] * scale, Labels(self.names, np.concatenate(codes)[:n])


class Client:
    """One client on its way through the windows. left: mean gaps until it sends next."""

    def __init__(self, of: Clients, place: int, seed: Seed) -> None:
        """Read its rows; its stream is its own, so other clients never move it."""
        self.random = stream(seed, f"arrivals of {of.names[place]}")
        self.families, self.shapes = of.families[place], of.shapes[place]
        self.means = [rate * of.window_s for rate in of.rates[place]]
        self.left: float | None = None

    def send(self, window: int) -> NDArray[np.float64]:
        """Return its arrivals in one window, as shares of the window."""
        mean = self.means[window]
        if mean == 0.0:
            return np.zeros(0)
        shape = self.families[window], self.shapes[window]
        if self.left is None:
            self.left = residual_gap(shape, self.random)
        places = [np.array([self.left])]
        while places[-1][-1] < mean:
            gaps = unit_gaps(shape, int(mean) + 8, self.random)
            places.append(places[-1][-1] + np.cumsum(gaps))
        reached = np.concatenate(places)
        n_sent = int(np.searchsorted(reached, mean))
        self.left = float(reached[n_sent] - mean)
        return reached[:n_sent] / mean


def unit_gaps(shape: Shape, n: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Return n gaps of mean 1."""
    family, k = shape
    if family == GAMMA:
        return random.standard_gamma(k, n) / k
    return random.weibull(k, n) / gamma(1.0 + 1.0 / k)


def residual_gap(shape: Shape, random: np.random.Generator) -> float:
    """Return the time to the next arrival of a process that has run for ever, in mean gaps.

    A uniform share of a gap drawn with weight its length: Gamma(k) becomes Gamma(k + 1), and the
    k-th power of a Weibull(k) gap becomes Gamma(1 + 1/k).
    """
    family, k = shape
    if family == GAMMA:
        gap = random.standard_gamma(k + 1.0) / k
    else:
        gap = random.standard_gamma(1.0 + 1.0 / k) ** (1.0 / k) / gamma(1.0 + 1.0 / k)
    return float(random.random() * gap)
