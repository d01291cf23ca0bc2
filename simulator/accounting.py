"""One pass over the request records: everything a summary counts, adds up or takes a percentile of.

Temporaries are three float64 a request (TTFT, TPOT, E2E), grouped by tier, undefined values as +inf
at the end of every order; percentiles are selected in place.
"""

from typing import NamedTuple

import numpy as np

from servegym.simulator.build import records
from servegym.simulator.kernel import kernel
from servegym.simulator.metrics import (
    e2e,
    end_ps,
    is_slo_met,
    is_slo_missed,
    penalty,
    tpot,
    ttft,
    wait_ps,
)
from servegym.simulator.state import CANCELLED, FINISHED

TTFT, TPOT, E2E = 0, 1, 2  # rows of `values`
LEVELS = (0.50, 0.90, 0.95, 0.99)
LOW_BITS = 32  # a sum of latencies exceeds int64: the low bits are summed apart from the high
LOW_MASK = (1 << LOW_BITS) - 1

# Sums over one tier's offered requests.
TOTALS = np.dtype(
    [
        ("offered", "i8"),
        ("by_status", "i8", (CANCELLED + 1,)),  # by status
        ("n_defined", "i8", (3,)),  # requests with a TTFT, TPOT, E2E
        ("sum_s", "f8", (3,)),  # of TTFT, TPOT, E2E
        ("slo_met", "i8"),
        ("slo_missed", "i8"),  # the rest is undecided: unfinished and not overdue
        ("output_tokens", "i8"),  # of finished requests
        ("preemptions", "i8"),
        ("preempted", "i8"),  # requests preempted at least once
        ("recomputed_tokens", "i8"),
        ("migrations", "i8"),
        ("latency_high", "i8"),  # of the sum of latencies, in units of 2**LOW_BITS ps
        ("latency_low", "i8"),  # ps
        ("penalty_s", "f8"),
        ("longest_wait_ps", "i8"),
        ("last_end_ps", "i8"),
    ]
)


class Account(NamedTuple):
    """A run in numbers."""

    totals: np.ndarray  # TOTALS[tiers]
    percentiles: np.ndarray  # float64[tiers + 1, 3, LEVELS], NaN undefined; the last row is overall


@kernel
def add_request(request, limit, cut_ps, total):
    """Add one request to its tier's totals (mutates total)."""
    total.offered += 1
    total.by_status[request.status] += 1
    total.slo_met += is_slo_met(request, limit)
    total.slo_missed += is_slo_missed(request, limit, cut_ps)
    if request.status == FINISHED:
        total.output_tokens += request.output_tokens
    total.preemptions += request.preemptions
    total.preempted += request.preemptions > 0
    total.recomputed_tokens += request.recomputed_tokens
    total.migrations += request.migrations
    latency = min(end_ps(request, cut_ps), cut_ps) - request.arrival_ps
    total.latency_high += latency >> LOW_BITS
    total.latency_low += latency & LOW_MASK
    total.penalty_s += penalty(request, limit)
    total.longest_wait_ps = max(total.longest_wait_ps, wait_ps(request, cut_ps))
    total.last_end_ps = max(total.last_end_ps, end_ps(request, cut_ps))


@kernel
def add_value(values, row, position, value, total):
    """Store a measure, +inf if undefined, and count it (mutates values and total)."""
    if value == value:
        values[row, position] = value
        total.n_defined[row] += 1
        total.sum_s[row] += value
    else:
        values[row, position] = np.inf


@kernel
def add_up(requests, limits, cut_ps, totals, values, positions):
    """Add up all requests (mutates totals TOTALS[tiers], values float64[3, n]).

    positions: int64[tiers], where each tier's part of `values` begins (mutated).
    """
    for r in range(requests.shape[0]):
        request = requests[r]
        total = totals[request.tier]
        position = positions[request.tier]
        positions[request.tier] += 1
        add_request(request, limits[request.tier], cut_ps, total)
        add_value(values, TTFT, position, ttft(request), total)
        add_value(values, TPOT, position, tpot(request), total)
        add_value(values, E2E, position, e2e(request), total)


def take_account(
    requests: np.ndarray, tiers: np.ndarray, limits: np.ndarray, cut_ps: int
) -> Account:
    """Return totals and percentiles of REQUEST[n].

    tiers: int16[n], the requests' own, contiguous. limits: TARIFF[n_tiers].
    """
    n_tiers, n = len(limits), len(requests)
    sizes = np.bincount(tiers, minlength=n_tiers) if n_tiers > 1 else np.array([n])
    ends = np.cumsum(sizes)
    totals = records(n_tiers, TOTALS)
    values = np.empty((3, n))
    add_up(requests, limits, cut_ps, totals, values, ends - sizes)
    percentiles = np.full((n_tiers + 1, 3, len(LEVELS)), np.nan)
    for row in (TTFT, TPOT, E2E):
        for tier, (end, size) in enumerate(zip(ends, sizes, strict=True)):
            n_defined = int(totals["n_defined"][tier, row])
            percentiles[tier, row] = select_percentiles(values[row, end - size : end], n_defined)
        if n_tiers > 1:
            percentiles[-1, row] = select_percentiles(
                values[row], int(totals["n_defined"][:, row].sum())
            )
    if n_tiers == 1:
        percentiles[1] = percentiles[0]
    return Account(totals, percentiles)


def select_percentiles(values: np.ndarray, n: int) -> list[float]:
    """Return the percentiles at LEVELS of the n least of `values`, NaN for n = 0 (reorders values).

    Linear between neighbours, as numpy.percentile. One selection a level, each in what the last
    left on its right: a single selection is vectorised in numpy, several at once are not.
    """
    if n == 0:
        return [np.nan] * len(LEVELS)
    selected, start = [], 0
    for level in LEVELS:
        rank = level * (n - 1)
        k = int(rank)
        values[start:].partition(k - start)
        low, start = values[k], k
        high = values[k + 1 :].min() if rank > k else low
        selected.append(low + (high - low) * (rank - k))
    return selected
