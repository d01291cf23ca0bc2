"""Llumnix dispatch: most free blocks a request, with a reserve that keeps priority and normal requests apart.

Load = -(free above the watermark - blocks of all waiting - adjustment) / (running + waiting), least first, empty
instances before all others. Adjustment: the reserve (all blocks but those of `reserve_tokens`), for a normal request on
instances that hold priority requests, for a priority request on those that hold none. Tier 0 is the priority class,
every other tier is normal; with one tier nobody has priority. Ties: rotate.
Source: Llumnix (OSDI '24). With migration off it is the paper's INFaaS++.
"""

import math

from servegym.baselines.dispatch.ties import rotated, rotation
from servegym.baselines.freeness import remaining_steps
from servegym.baselines.headroom import has_priority_class, holds_priority, priority_reserve
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, dispatch_policy
from servegym.simulator.views import HOLD, is_accepting, n_instances, tier

SPARE_TOKENS = 1600  # outside the reserve, on every instance

RESERVE = (
    Param("headroom", 1, "0 off, 1 on", 0, 1, is_whole=True),
    Param("reserve_tokens", SPARE_TOKENS, "tokens outside the reserve", 0, 1e9, is_whole=True),
)


@kernel
def dispatch_reserve(cluster, request, i, params):
    """Return the blocks of instance i that the request may not count on."""
    if params[0] == 0 or not has_priority_class(cluster):
        return 0
    is_kept_apart = (tier(request) == 0) != holds_priority(cluster, i)
    return priority_reserve(cluster, i, params[1]) if is_kept_apart else 0


@dispatch_policy(source="Llumnix (OSDI '24)", params=RESERVE, memory=1)
def llumnix_dispatch(cluster, request, params, memory, rng):
    """Return the accepting instance with the least load."""
    chosen, most = HOLD, -math.inf
    n, start = n_instances(cluster), rotation(memory, cluster)
    for offset in range(n):
        i = rotated(start, offset, n)
        if not is_accepting(cluster, request, i):
            continue
        steps = remaining_steps(cluster, i, dispatch_reserve(cluster, request, i, params))
        if steps > most:
            chosen, most = i, steps
    return chosen
