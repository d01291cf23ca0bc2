"""N-tier dispatch: the instance with the largest freeness, less the headroom of every tier present on it.

F = (M - used - head of the queue - sum of H_p over tiers present) / max(1, running). First index on ties, as published.
Source: Beyond Binary Priorities. Which request comes first, the least tier, is the gateway's order (`priority`).
"""

import math

from servegym.baselines.freeness import freeness
from servegym.baselines.headroom import (
    headroom_memory,
    headroom_params,
    prepare_headroom,
)
from servegym.simulator.policy import dispatch_policy
from servegym.simulator.views import HOLD, is_accepting, n_instances


@dispatch_policy(
    source="Beyond Binary Priorities (freeness with a headroom for each tier)",
    params=headroom_params(1),
    memory=headroom_memory,
)
def n_tier(cluster, request, params, memory, rng):
    """Return the accepting instance with the largest freeness, the first of equals."""
    prepare_headroom(cluster, params, memory)
    chosen, most = HOLD, -math.inf
    for i in range(n_instances(cluster)):
        if not is_accepting(cluster, request, i):
            continue
        free = freeness(cluster, i, memory)
        if free > most:
            chosen, most = i, free
    return chosen
