"""Tally: what has accrued up to an instant, kept event by event, so that a reward is a difference of two readings.

Of a request that has arrived, `latency` accrues until it ends, weighted also by its tier; `time to first token` until
that streams or the request ends. One that is not served (rejected, failed, cancelled) adds its penalty, to the latter
only if it streamed nothing. So the latency of a run up to its cut is Result.total_latency_s. Every term is

    accrued(t) = ended + present * t - arrivals          (sums over requests, TALLY)

A client that asks again takes back that its request had ended.
"""

from servegym.simulator.calls import centre
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.metrics import is_slo_met, penalty
from servegym.simulator.seconds import PS_PER_S

LATENCY, WEIGHTED, FIRST_TOKEN = 0, 1, 2  # rows of TALLY's sums


@kernel
def tally_arrival(state, r):
    """Let a request accrue from its arrival on."""
    request = state.requests[r]
    _begin(centre(state).tally[0], request, centre(state).tariffs[request.tier])


@kernel
def tally_first_token(state, r, sign):
    """Let a request's time to first token end (+1), or go on as if it had not (-1)."""
    _end_wait(centre(state).tally[0], state.requests[r], sign)


@kernel
def tally_end(state, r, sign):
    """Let what a request accrues end, as its record says (+1), or go on as if it had not (-1)."""
    request = state.requests[r]
    _end(centre(state).tally[0], request, centre(state).tariffs[request.tier], sign)


@kernel
def tally_retry(state, r):
    """Take back the end and the first token of a request whose client asks again, before its record forgets them."""
    tally_end(state, r, -1.0)
    if state.requests[r].first_token_ps >= 0:
        tally_first_token(state, r, -1.0)


@kernel
def accrued(tally, term, now_s):
    """Return what has accrued of a term by now, seconds (weighted)."""
    return tally.ended[term] + (tally.present[term] * now_s - tally.arrivals[term])


@cold_kernel
def _begin(tally, request, tariff):
    arrival_s = request.arrival_ps / PS_PER_S
    tally.present[LATENCY] += 1.0
    tally.arrivals[LATENCY] += arrival_s
    tally.present[WEIGHTED] += tariff.weight
    tally.arrivals[WEIGHTED] += tariff.weight * arrival_s
    tally.present[FIRST_TOKEN] += 1.0
    tally.arrivals[FIRST_TOKEN] += arrival_s


@cold_kernel
def _end_wait(tally, request, sign):
    _leave(tally, FIRST_TOKEN, sign, request.arrival_ps, request.first_token_ps, 0.0)


@cold_kernel
def _end(tally, request, tariff, sign):
    lost_s = penalty(request, tariff)
    _leave(tally, LATENCY, sign, request.arrival_ps, request.finish_ps, lost_s)
    _leave(tally, WEIGHTED, sign * tariff.weight, request.arrival_ps, request.finish_ps, lost_s)
    if request.first_token_ps < 0:
        _leave(tally, FIRST_TOKEN, sign, request.arrival_ps, request.finish_ps, lost_s)
    is_met = is_slo_met(request, tariff)
    tally.slo += sign * (tariff.weight if is_met else -tariff.weight)
    tally.n_slo_met += int(sign) if is_met else 0
    tally.n_ended += int(sign)


@kernel
def _leave(tally, term, weight, arrival_ps, end_ps, lost_s):
    tally.present[term] -= weight
    tally.arrivals[term] -= weight * (arrival_ps / PS_PER_S)
    tally.ended[term] += weight * ((end_ps - arrival_ps) / PS_PER_S + lost_s)
