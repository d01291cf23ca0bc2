"""Llumnix- dispatch: the most free KV blocks for each running request, those of waiting requests not counted as free.

Load = -(free - blocks of waiting) / max(1, running), least first. Dispatch only, no migration. Ties: rotate.
Source: the Llumnix- baseline of Astrolabe (Block).
"""

import math

from servegym.baselines.dispatch.ties import rotated, rotation
from servegym.simulator.policy import dispatch_policy
from servegym.simulator.views import (
    HOLD,
    free_blocks,
    is_accepting,
    n_instances,
    n_running,
    waiting_blocks,
)


@dispatch_policy(source="Astrolabe's Llumnix-", memory=1)
def llumnix_minus(cluster, request, params, memory, rng):
    """Return the accepting instance with the most blocks, free and not waited for, for each running request."""
    chosen, most = HOLD, -math.inf
    n, start = n_instances(cluster), rotation(memory, cluster)
    for offset in range(n):
        i = rotated(start, offset, n)
        free = free_blocks(cluster, i) - waiting_blocks(cluster, i)
        free /= max(1, n_running(cluster, i))
        if free > most and is_accepting(cluster, request, i):
            chosen, most = i, free
    return chosen
