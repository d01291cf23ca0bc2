"""Index of dispersion: how much burstier than Poisson arrivals are, at a time scale.

IoD(w) = variance / mean of the number of arrivals in windows of w seconds. Poisson: 1 at every w;
a renewal process: CV^2 at large w; a rate that changes slowly: 1 + mean * (relative variance) * w.
"""

from numpy.typing import ArrayLike

from servegym.traces.arrivals.rate import window_counts


def index_of_dispersion(arrival_s: ArrayLike, window_s: float) -> float | None:
    """Return sample variance / mean over whole windows; None with fewer than two or no arrivals."""
    counts = window_counts(arrival_s, window_s)
    if len(counts) < 2 or not counts.sum():
        return None
    return float(counts.var(ddof=1) / counts.mean())
