"""Scaling by freeness: add an instance when the mean is below a band, drain one when it is above.

Mean F over active instances, without headroom (headroom = 1: with). Below `low` add, above `high` drain, at most once
in `cooldown_s`. Source: Beyond Binary Priorities, band [-.5, 1.5], every 1 s, 10 s between changes.
Llumnix (OSDI '24): freeness:low=10,high=60 every 10 s.

An idle instance has F = M, far above any band, so one of them lifts the mean of an otherwise full fleet over it, and
the fleet stays near the least that is not overfull. Without traffic it shrinks to min_instances, which the engine
keeps, and stays there. An order to drain that changed nothing starts no cool-down: the next burst is not kept waiting.
Whether it did is seen from how many instances drain or are absent: a crash makes nobody absent.
"""

from servegym.baselines.freeness import freeness
from servegym.baselines.headroom import (
    FRACTIONS,
    N_HEADROOM_PARAMS,
    headroom_memory,
    headroom_params,
    prepare_headroom,
)
from servegym.baselines.readings import is_given_up
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, scaling_policy
from servegym.simulator.views import is_active, n_instances, n_tiers, now_s

LOW, HIGH, COOLDOWN = N_HEADROOM_PARAMS, N_HEADROOM_PARAMS + 1, N_HEADROOM_PARAMS + 2
ADD, KEEP, DRAIN = 1, 0, -1
ORDER, ORDERED_S, N_GIVEN_UP = 0, 1, 2  # in memory, behind the table of headroom


@scaling_policy(
    name="freeness",
    source="Beyond Binary Priorities (band on mean freeness)",
    params=(
        *headroom_params(0),
        Param("low", -0.5, "blocks a request", -1e9, 1e9),
        Param("high", 1.5, "blocks a request", -1e9, 1e9),
        Param("cooldown_s", 10, "s", 0, 1e6),
    ),
    # the last order, when, instances that drained or were absent then
    memory=lambda config: headroom_memory(config) + 3,
)
def freeness_band(cluster, params, memory, rng):
    """Return +1 below the band or without any active instance, -1 above it, else 0."""
    prepare_headroom(cluster, params, memory)
    last = FRACTIONS + n_tiers(cluster)
    n_given_up = given_up(cluster)
    has_changed = memory[last + ORDER] == ADD or (
        memory[last + ORDER] == DRAIN and n_given_up > memory[last + N_GIVEN_UP]
    )
    if has_changed and now_s(cluster) - memory[last + ORDERED_S] < params[COOLDOWN]:
        return KEEP
    n_active, total = active_freeness(cluster, memory)
    order = band_order(n_active, total, params[LOW], params[HIGH])
    memory[last + ORDER], memory[last + ORDERED_S] = order, now_s(cluster)
    memory[last + N_GIVEN_UP] = n_given_up
    return order


@kernel
def given_up(cluster):
    """Return the number of instances that drain or are absent."""
    n = 0
    for i in range(n_instances(cluster)):
        n += is_given_up(cluster, i)
    return n


@kernel
def active_freeness(cluster, memory):
    """Return the number of active instances and the sum of their F."""
    n_active, total = 0, 0.0
    for i in range(n_instances(cluster)):
        if is_active(cluster, i):
            n_active += 1
            total += freeness(cluster, i, memory)
    return n_active, total


@kernel
def band_order(n_active, total, low, high):
    """Return the order for a mean of total / n_active."""
    if n_active == 0 or total < low * n_active:
        return ADD
    return DRAIN if total > high * n_active else KEEP
