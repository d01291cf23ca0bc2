"""The measures of a served request and of a run, each defined once, under its name.

Of one record (dtype state.REQUEST): TTFT, TPOT, E2E, queue time, in float64 seconds, NaN while
undefined; durations are whole picoseconds, converted once. TTFT + (output_tokens - 1)*TPOT = E2E.
TTFT is frozen once streamed, whatever preemption does; a token counts when streamed, never twice.
Of sums: SLO attainment, goodput, total latency, Jain's index (Jain, Chiu and Hawe 1984).
"""

from collections.abc import Sequence

from servegym.simulator.kernel import kernel
from servegym.simulator.seconds import PS_PER_S
from servegym.simulator.state import CANCELLED, FINISHED, REJECTED

NAN = float("nan")


@kernel
def ttft(request):
    """Return time to first token, s: first token - arrival; NaN until it is streamed."""
    if request.first_token_ps < 0:
        return NAN
    return (request.first_token_ps - request.arrival_ps) / PS_PER_S


@kernel
def tpot(request):
    """Return time per output token, s: (E2E - TTFT) / (output_tokens - 1).

    NaN unless finished, and for a single token.
    """
    if request.status != FINISHED or request.output_tokens < 2:
        return NAN
    return (request.finish_ps - request.first_token_ps) / (PS_PER_S * (request.output_tokens - 1))


@kernel
def e2e(request):
    """Return end-to-end latency, s: finish - arrival; NaN unless finished."""
    if request.status != FINISHED:
        return NAN
    return (request.finish_ps - request.arrival_ps) / PS_PER_S


@kernel
def queue_time(request):
    """Return the wait for the first iteration, s: admitted - arrival; NaN until admitted."""
    if request.admitted_ps < 0:
        return NAN
    return (request.admitted_ps - request.arrival_ps) / PS_PER_S


@kernel
def is_slo_met(request, limit):
    """Return whether the request finished within its tier's limits (a single token has no TPOT)."""
    if request.status != FINISHED or ttft(request) > limit.ttft_s:
        return False
    return request.output_tokens < 2 or tpot(request) <= limit.tpot_s


@kernel
def is_slo_missed(request, limit, cut_ps):
    """Return whether the SLO is lost at cut_ps: not served, late, or unfinished and overdue."""
    if request.status == FINISHED:
        return not is_slo_met(request, limit)
    if is_dropped(request):
        return True
    if request.first_token_ps < 0:
        return cut_ps - request.arrival_ps > limit.ttft_s * PS_PER_S
    late_ps = limit.tpot_s * (request.output_tokens - 1) * PS_PER_S
    is_late = request.output_tokens >= 2 and cut_ps - request.first_token_ps > late_ps
    return ttft(request) > limit.ttft_s or is_late


@kernel
def is_dropped(request):
    """Return whether the request was rejected, failed or cancelled."""
    return REJECTED <= request.status <= CANCELLED


@kernel
def end_ps(request, cut_ps):
    """Return when the request ended, finished or not served; cut_ps if it has not (int64 ps)."""
    return request.finish_ps if request.status >= FINISHED else cut_ps


@kernel
def wait_ps(request, cut_ps):
    """Return how long the request waited, or has waited, for its first iteration (int64 ps)."""
    if request.admitted_ps >= 0:
        return request.admitted_ps - request.arrival_ps
    return end_ps(request, cut_ps) - request.arrival_ps


@kernel
def penalty(request, limit):
    """Return what a request that is not served adds to the total latency, s; 0 for any other."""
    if not is_dropped(request):
        return 0.0
    if limit.penalty_s >= 0.0:
        return limit.penalty_s
    return limit.ttft_s + limit.tpot_s * (request.output_tokens - 1)


def total_latency(latency_ps: int, penalty_s: float) -> float:
    """Return the run's total latency, s: the exact sum of all latencies, and the penalties.

    A latency is min(end, horizon) - arrival of an offered request; held, queued and running alike.
    """
    return latency_ps / 10**12 + penalty_s


def slo_attainment(n_met: float, n_offered: float) -> float | None:
    """Return the share of offered requests (or of their weight) that met the SLO."""
    return n_met / n_offered if n_offered else None


def goodput(n_met: int, span_s: float) -> float | None:
    """Return the requests that met the SLO per second of the run."""
    return n_met / span_s if span_s > 0 else None


def jain_index(values: Sequence[float]) -> float | None:
    """Return (sum x)^2 / (n * sum x^2): 1 when all are equal, 1/n when one has all.

    None for no values, or nothing but zeros.
    """
    squares = sum(x * x for x in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else None
