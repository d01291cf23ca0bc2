"""INFaaS + vLLM dispatch, the N-tier paper's baseline: join the shortest queue, with penalties for slow instances.

Cost = depth * s + service_ms * s + penalty, least first, lowest index on ties; s = max(.5, 1 - .1 * (K - 1 - p)) for
tier p of K; depth = waiting + 2 * running; service_ms: one iteration of this prompt alone. Penalty: 1 overloaded
(latency > 1.3 * target and depth > 2), else .5 interfered (latency > 1.15 * target and depth <= 1); target 1,000 ms.
Source: Beyond Binary Priorities, its INFaaS + vLLM.

A router does not see completions, so latency is estimated: what a request finds when it is placed,
service_ms * (1 + waiting + running) ms, in a moving average of its instance, .6 the weight of the newest.
"""

import math

from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, dispatch_policy
from servegym.simulator.views import (
    HOLD,
    is_accepting,
    n_instances,
    n_running,
    n_tiers,
    n_waiting,
    prefill_alone_ms,
    tier,
)

NEWEST_SHARE = 0.6
OVERLOADED_AT, INTERFERED_AT = 1.3, 1.15  # times the target
LEAST_SCALE, SCALE_STEP = 0.5, 0.1


@kernel
def tier_scale(p, n_tiers):
    """Return how much a cost counts for a request of tier p: .1 less for every tier below it, at least .5."""
    return max(LEAST_SCALE, 1.0 - SCALE_STEP * (n_tiers - 1 - p))


@kernel
def slowness_penalty(latency_ms, depth, target_ms):
    """Return 1 for an overloaded instance, .5 for one that is slow though nearly empty, else 0."""
    if latency_ms > OVERLOADED_AT * target_ms and depth > 2:
        return 1.0
    return 0.5 if latency_ms > INTERFERED_AT * target_ms and depth <= 1 else 0.0


@kernel
def averaged(before, newest):
    """Return the moving average after a new value; 0 before the first."""
    return newest if before == 0.0 else NEWEST_SHARE * newest + (1.0 - NEWEST_SHARE) * before


@dispatch_policy(
    source="Beyond Binary Priorities (its INFaaS + vLLM baseline)",
    name="infaas-vllm",
    params=(Param("target_ms", 1000, "ms", 0, 1e9),),
    memory=lambda config: config.most_instances,  # averages of latency, ms
)
def infaas_vllm(cluster, request, params, memory, rng):
    """Return the accepting instance with the least cost, the first of equals."""
    chosen, least = HOLD, math.inf
    scale = tier_scale(tier(request), n_tiers(cluster))
    for i in range(n_instances(cluster)):
        if not is_accepting(cluster, request, i):
            continue
        depth = n_waiting(cluster, i) + 2 * n_running(cluster, i)
        cost = (depth + prefill_alone_ms(cluster, request, i)) * scale
        cost += slowness_penalty(memory[i], depth, params[0])
        if cost < least:
            chosen, least = i, cost
    if chosen != HOLD:
        found = 1 + n_waiting(cluster, chosen) + n_running(cluster, chosen)
        newest_ms = found * prefill_alone_ms(cluster, request, chosen)
        memory[chosen] = averaged(memory[chosen], newest_ms)
    return chosen
