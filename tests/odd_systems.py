"""Policies with parameters of one name, for tests of systems made of several parts."""

from servegym.simulator.policy import Param, dispatch_policy, ordering_policy
from servegym.simulator.views import HOLD, arrival_s, is_accepting, n_instances, n_running

RATE = Param("rate", 1.0, "1/s", 0, 10)
BASE = Param("base", 1.0, "s", 0, 10)


@dispatch_policy(source="test", name="test-rated", params=(RATE,))
def rated(cluster, request, params, memory, rng):
    """Return the accepting instance with the least running requests times the rate."""
    chosen = HOLD
    for i in range(n_instances(cluster)):
        if is_accepting(cluster, request, i) and (
            chosen == HOLD or n_running(cluster, i) * params[0] < n_running(cluster, chosen)
        ):
            chosen = i
    return chosen


@ordering_policy(source="test", name="test-aged", params=(RATE, BASE))
def aged(request, now_ps, params):
    """Return the arrival times the rate, plus the base."""
    return arrival_s(request) * params[0] + params[1]


@ordering_policy(source="test", name="test-based", params=(BASE,))
def based(request, now_ps, params):
    """Return the base."""
    return params[0]
