"""Headroom: KV blocks that an instance keeps back for every tier present on it, so that urgent requests find room.

H_p = floor(M * peak * exp(-decay * p / (K - 1))) blocks for tier p of K; M: KV blocks, peak .20, decay 2.5. Linear:
floor(M * peak * (1 - p / (K - 1))). Vector: floor(M * h_p). One tier has none. Source: Beyond Binary Priorities, which
writes lambda for decay / (K - 1). The binary reserve for K = 2 is Llumnix's (OSDI '24): all blocks but 1,600 tokens.

Fractions of M stand in the policy's memory, since exp for every tier, instance and request costs more than the rest.
"""

import math

from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param
from servegym.simulator.views import block_size, kv_blocks, n_tiers, tier_count

EXPONENTIAL, LINEAR, VECTOR = 0, 1, 2
SWITCH, FORM, PEAK, DECAY, FIRST_OF_VECTOR = 0, 1, 2, 3, 4  # among the parameters
N_VECTOR = 10  # tiers beyond have no headroom in the vector form
N_HEADROOM_PARAMS = FIRST_OF_VECTOR + N_VECTOR
FRACTIONS = N_HEADROOM_PARAMS  # in memory, behind the parameters that they were computed from


def headroom_params(switch: int) -> tuple[Param, ...]:
    """Return the parameters that a policy with headroom takes first; switch: whether it is on by default."""
    vector = tuple(Param(f"h{p}", 0.0, "of the KV blocks", 0, 1) for p in range(N_VECTOR))
    return (
        Param("headroom", switch, "0 off, 1 on", 0, 1, is_whole=True),
        Param("form", EXPONENTIAL, "0 exponential, 1 linear, 2 vector", 0, 2, is_whole=True),
        Param("peak", 0.20, "of the KV blocks", 0, 1),
        Param("decay", 2.5, "from the first tier to the last", 0, 50),
        *vector,
    )


def headroom_memory(config) -> int:
    """Return the floats of memory that come first in a policy with headroom."""
    return FRACTIONS + config.tiers


@kernel
def headroom_fraction(params, p, n_tiers):
    """Return the headroom of tier p as a fraction of an instance's KV blocks."""
    if params[SWITCH] == 0 or n_tiers == 1:
        return 0.0
    if params[FORM] == VECTOR:
        return params[FIRST_OF_VECTOR + p] if p < N_VECTOR else 0.0
    place = p / (n_tiers - 1)
    if params[FORM] == LINEAR:
        return params[PEAK] * (1.0 - place)
    return params[PEAK] * math.exp(-params[DECAY] * place)


@kernel
def prepare_headroom(cluster, params, memory):
    """Compute the fractions anew if the parameters have changed (mutates memory).

    Fresh memory, all zero, is right for the parameters that it holds: switched off.
    """
    n_used = N_HEADROOM_PARAMS if params[FORM] == VECTOR else FIRST_OF_VECTOR
    k = 0
    while k < n_used and memory[k] == params[k]:
        k += 1
    if k == n_used:
        return
    for k in range(N_HEADROOM_PARAMS):
        memory[k] = params[k]
    for p in range(n_tiers(cluster)):
        memory[FRACTIONS + p] = headroom_fraction(params, p, n_tiers(cluster))


@kernel
def tier_headroom(blocks, memory, p):
    """Return the blocks that an instance of so many blocks keeps back for tier p when p is present."""
    return int(blocks * memory[FRACTIONS + p])  # the floor of what is not negative


@kernel
def headroom_blocks(cluster, i, memory):
    """Return the blocks that instance i keeps back: once for each tier of which it has a request."""
    total, blocks = 0, kv_blocks(cluster, i)
    if memory[SWITCH] == 0:
        return total
    for p in range(n_tiers(cluster)):
        is_present = tier_count(cluster, i, p) > 0
        total += is_present * tier_headroom(blocks, memory, p)
    return total


@kernel
def has_priority_class(cluster):
    """Return whether tier 0 is a class of its own, above the normal requests."""
    return n_tiers(cluster) > 1


@kernel
def holds_priority(cluster, i):
    """Return whether instance i has a request of the priority class, waiting or running."""
    return has_priority_class(cluster) and tier_count(cluster, i, 0) > 0


@kernel
def priority_reserve(cluster, i, spare_tokens):
    """Return Llumnix's reserve: all blocks of instance i but those of spare_tokens."""
    spare_blocks = -((-int(spare_tokens)) // block_size(cluster))
    return max(0, kv_blocks(cluster, i) - spare_blocks)
