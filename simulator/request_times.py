"""The times of every request in seconds, for the table of requests: NaN while undefined."""

from servegym.simulator.kernel import kernel
from servegym.simulator.metrics import NAN, e2e, queue_time, tpot, ttft
from servegym.simulator.seconds import PS_PER_S

TIMES = ("admitted_s", "first_token_s", "finish_s", "ttft_s", "tpot_s", "e2e_s", "queue_s")


@kernel
def seconds_at(ps):
    """Return an instant in seconds, NaN for one that has not come (negative)."""
    return ps / PS_PER_S if ps >= 0 else NAN


@kernel
def fill_times(requests, times):
    """Fill times, float64[len(TIMES), n], one row a column (mutates it)."""
    for r in range(requests.shape[0]):
        request = requests[r]
        times[0, r] = seconds_at(request.admitted_ps)
        times[1, r] = seconds_at(request.first_token_ps)
        times[2, r] = seconds_at(request.finish_ps)
        times[3, r] = ttft(request)
        times[4, r] = tpot(request)
        times[5, r] = e2e(request)
        times[6, r] = queue_time(request)
