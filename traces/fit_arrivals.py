"""Fit an arrival process to recorded times: modulated Poisson, or a Markov-modulated one.

Modulated, when the rate wanders: the spectrum of the counts in windows that stands out from
Poisson's, at the variance of the counts less Poisson's own. A rate that varies by more than half its mean would
often fall below 0 there; bursts and silences are a Poisson hidden Markov model of 1-s counts.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from servegym.traces.arrivals import ArrivalProcess, Mmpp, Modulated, Poisson
from servegym.traces.arrivals.rate import window_counts
from servegym.traces.poisson_hmm import PoissonHmm, fit_poisson_hmm

LEAST_REQUESTS = 200
MOST_MODULATION = 0.5
DIGITS = 6
RATE_WINDOWS = (30.0, 60, 500)  # usual length, s; fewest and most in a trace
STATE_WINDOWS = (1.0, 1_000, 5_000)
STATES = 5


def fit_arrivals(arrival_s: ArrayLike) -> ArrivalProcess:
    """Return the process fitted to arrival times, s; Poisson for fewer than 200 requests.

    Windows are 30 s for the rate and 1 s for the states, longer or shorter for traces of more than
    about an hour or less than some minutes.
    """
    times = np.asarray(arrival_s, dtype=np.float64)
    span_s = float(np.ptp(times)) if len(times) else 0.0
    if len(times) < LEAST_REQUESTS or span_s == 0.0:
        return Poisson()
    window_s = suitable_window(span_s, *RATE_WINDOWS)
    counts = window_counts(times, window_s)
    if modulation(counts) <= MOST_MODULATION:
        return fit_modulated(counts, window_s)
    state_s = suitable_window(span_s, *STATE_WINDOWS)
    return to_mmpp(fit_poisson_hmm(window_counts(times, state_s), STATES), state_s)


def suitable_window(span_s: float, usual_s: float, fewest: int, most: int) -> float:
    """Return the usual window, s, or the nearest of which the span has fewest to most."""
    return float(np.clip(usual_s, span_s / most, span_s / fewest))


def modulation(counts: NDArray[np.int64]) -> float:
    """Return the standard deviation of the rate behind Poisson counts, as a share of its mean."""
    mean = counts.mean()
    return float(np.sqrt(max(0.0, counts.var() - mean)) / mean)


def fit_modulated(counts: NDArray[np.int64], window_s: float) -> Modulated:
    """Return the process whose rate has the spectrum of the counts above Poisson's own.

    That is flat, n * mean; sum a_k^2 / 2 = modulation^2, so that cutting at it moves no variance.
    """
    n = len(counts)
    power = np.abs(np.fft.rfft(counts - counts.mean()))[1:] ** 2
    power = np.maximum(power - n * counts.mean(), 0.0)
    shares = power / max(power.sum(), 1e-300)
    amplitudes = np.sqrt(2.0 * shares) * modulation(counts)
    return Modulated(window_s, n, tuple(np.round(amplitudes, DIGITS).tolist()))


def to_mmpp(model: PoissonHmm, window_s: float) -> Mmpp:
    """Return the chain in continuous time, its mean rate 1."""
    stay = np.diag(model.transitions)
    jumps = model.transitions - np.diag(stay)
    jumps /= jumps.sum(axis=1, keepdims=True)
    stay_s = np.round(window_s / (1.0 - stay), DIGITS)
    rows = tuple(tuple(row) for row in np.round(jumps, DIGITS + 2).tolist())
    raw = Mmpp(tuple(model.means.tolist()), tuple(stay_s.tolist()), rows)
    rates = model.means / (raw.occupancy() @ model.means)
    return Mmpp(tuple(np.round(rates, DIGITS).tolist()), raw.stay_s, rows)
