"""INFaaS dispatch: the most free KV blocks for each running request.

Load = -free / max(1, running), least first: requests that wait are not seen, so that a burst between two iterations
goes to one instance. Ties: rotate, so that idle instances share.
Source: the INFaaS baseline of Astrolabe (Block), after the one in Llumnix.
"""

import math

from servegym.baselines.dispatch.ties import rotated, rotation
from servegym.simulator.policy import dispatch_policy
from servegym.simulator.views import HOLD, free_blocks, is_accepting, n_instances, n_running


@dispatch_policy(source="Astrolabe's INFaaS", memory=1)
def infaas(cluster, request, params, memory, rng):
    """Return the accepting instance with the most free blocks for each running request."""
    chosen, most = HOLD, -math.inf
    n, start = n_instances(cluster), rotation(memory, cluster)
    for offset in range(n):
        i = rotated(start, offset, n)
        free = free_blocks(cluster, i) / max(1, n_running(cluster, i))
        if free > most and is_accepting(cluster, request, i):
            chosen, most = i, free
    return chosen
