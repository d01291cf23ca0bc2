"""Marginal dispatch: take the instance where the request adds least to everybody's latency, its own included.

Source: ours (docs/engine.md section 11): two futures of an instance, with the request and without. A newcomer that
makes others wait, or be preempted, pays for it. Ties: at random.
"""

from servegym.baselines.dispatch.power_of_two import MOST_SAMPLES, sample_instance
from servegym.baselines.dispatch.ties import takes_turn
from servegym.simulator.policy import Param, dispatch_policy
from servegym.simulator.views import HOLD, is_accepting, marginal_latency_s, n_instances

NO_LIMIT_S = float("inf")


@dispatch_policy(
    source="ours: least rise of the sum of latencies",
    params=(
        Param("samples", 0, "instances, 0 for all", 0, MOST_SAMPLES, is_whole=True),
        Param("is_weighted", 0, "1: latencies count 2^-tier", 0, 1, is_whole=True),
    ),
    memory=MOST_SAMPLES,
)
def marginal(cluster, request, params, memory, rng):
    """Return the instance, of all accepting or of a sample, with the least marginal latency."""
    n, is_sampled = n_instances(cluster), params[0] > 0
    if is_sampled:
        n = 0
        while n < params[0] and sample_instance(cluster, request, memory, rng, n) != HOLD:
            n += 1
    chosen, least_s, n_equal = HOLD, NO_LIMIT_S, 0
    for k in range(n):
        i = int(memory[k]) if is_sampled else k
        if not is_accepting(cluster, request, i):
            continue
        rise_s = marginal_latency_s(cluster, request, i, params[1] > 0)
        if rise_s < least_s:
            n_equal = 0
        if rise_s <= least_s:
            n_equal += 1
            least_s = rise_s
            if takes_turn(rng, n_equal):
                chosen = i
    return chosen
