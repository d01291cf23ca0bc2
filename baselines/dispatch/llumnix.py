"""Llumnix dispatch: most free blocks a request, with a reserve that keeps priority and normal requests apart.

Load = -(free above the watermark - blocks of all waiting - adjustment) / (running + waiting), least first, empty
instances before all others. Adjustment: the reserve (all blocks but those of `reserve_tokens`), for a normal request on
instances that hold priority requests, for a priority request on those that hold none. Tier 0 is the priority class,
every other tier is normal; with one tier nobody has priority. Ties: rotate.
headroom = 2: the adjustment is N-tier's headroom of all tiers present on the instance, whoever asks (headroom.py).
Source: Llumnix (OSDI '24). With migration off it is the paper's INFaaS++.
"""

import math

from servegym.baselines.dispatch.ties import rotated, rotation
from servegym.baselines.freeness import remaining_steps
from servegym.baselines.headroom import (
    BY_TIER,
    FRACTIONS,
    OFF,
    RESERVE_TOKENS,
    SWITCH,
    has_priority_class,
    headroom_blocks,
    headroom_memory,
    holds_priority,
    llumnix_params,
    prepare_headroom,
    priority_reserve,
)
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import dispatch_policy
from servegym.simulator.views import HOLD, is_accepting, n_instances, n_tiers, tier


@kernel
def dispatch_reserve(cluster, request, i, params, memory):
    """Return the blocks of instance i that the request may not count on."""
    if params[SWITCH] == OFF or not has_priority_class(cluster):
        return 0
    if params[SWITCH] == BY_TIER:
        return headroom_blocks(cluster, i, memory)
    is_kept_apart = (tier(request) == 0) != holds_priority(cluster, i)
    return priority_reserve(cluster, i, params[RESERVE_TOKENS]) if is_kept_apart else 0


@dispatch_policy(
    source="Llumnix (OSDI '24)",
    params=llumnix_params(),
    memory=lambda config: headroom_memory(config) + 1,
)
def llumnix_dispatch(cluster, request, params, memory, rng):
    """Return the accepting instance with the least load."""
    if params[SWITCH] == BY_TIER:
        prepare_headroom(cluster, params, memory)
    chosen, most = HOLD, -math.inf
    n, start = n_instances(cluster), rotation(memory[FRACTIONS + n_tiers(cluster) :], cluster)
    for offset in range(n):
        i = rotated(start, offset, n)
        if not is_accepting(cluster, request, i):
            continue
        steps = remaining_steps(cluster, i, dispatch_reserve(cluster, request, i, params, memory))
        if steps > most:
            chosen, most = i, steps
    return chosen
