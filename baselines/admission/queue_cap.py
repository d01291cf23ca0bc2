"""Queue cap: so many requests of a tier may be in the cluster at once; one more is rejected.

Counted: those of its tier that wait or run on instances, and those in the gateway's queues, whatever these are by.
Source: the finite queue M/M/c/K, with a K for each tier. Tiers beyond the tenth have the tenth's cap.
"""

from servegym.baselines.readings import n_queued_of_tier
from servegym.simulator.policy import Param, admission_policy
from servegym.simulator.views import ACCEPT, REJECT, n_instances, tier, tier_count

N_SET = 10


@admission_policy(
    source="finite queue M/M/c/K, K by tier",
    params=tuple(Param(f"cap_{p}", 256, "requests", 0, 2**31, is_whole=True) for p in range(N_SET)),
)
def queue_cap(cluster, request, params, memory, rng):
    """Accept unless as many of the request's tier as its cap are in the cluster."""
    p = tier(request)
    count = n_queued_of_tier(cluster, p)
    for i in range(n_instances(cluster)):
        count += tier_count(cluster, i, p)
    return ACCEPT if count < params[min(p, N_SET - 1)] else REJECT
