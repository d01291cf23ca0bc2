"""Headroom: KV blocks that an instance keeps back for every tier present on it, so that urgent requests find room.

H_p = floor(M * peak * exp(-decay * p / (K - 1))) blocks for tier p of K; M: KV blocks, peak .20, decay 2.5. Linear:
floor(M * peak * (1 - p / (K - 1))). Vector: floor(M * h_p). One tier has none. Source: Beyond Binary Priorities, which
writes lambda for decay / (K - 1). Reserve, Llumnix's binary one (OSDI '24): H_0 = max(0, M - ceil(reserve_tokens /
block_size)), all blocks but 1,600 tokens; nothing for other tiers.

Fractions of M stand in the policy's memory, since exp for every tier, instance and request costs more than the rest,
and before them the blocks that a fraction leaves out: those of reserve_tokens in the reserve, else 0.
"""

import math

from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param
from servegym.simulator.views import block_size, kv_blocks, n_tiers, tier_count

EXPONENTIAL, LINEAR, VECTOR, RESERVE = 0, 1, 2, 3
OFF, BINARY, BY_TIER = 0, 1, 2  # the switch of Llumnix's policies; of all others 1 is by tier
SWITCH, FORM, PEAK, DECAY, RESERVE_TOKENS, FIRST_OF_VECTOR = range(6)  # among the parameters
N_VECTOR = 10  # tiers beyond have no headroom in the vector form
N_HEADROOM_PARAMS = FIRST_OF_VECTOR + N_VECTOR
LEFT_OUT = N_HEADROOM_PARAMS  # in memory, behind the parameters that it was computed from
FRACTIONS = LEFT_OUT + 1
SPARE_TOKENS = 1600  # outside Llumnix's reserve, on every instance


def headroom_params(switch: int) -> tuple[Param, ...]:
    """Return the parameters that a policy with headroom takes first; switch: whether it is on by default."""
    forms = "0 exponential, 1 linear, 2 vector, 3 reserve"
    vector = tuple(Param(f"h{p}", 0.0, "of the KV blocks", 0, 1) for p in range(N_VECTOR))
    return (
        Param("headroom", switch, "0 off, 1 on", 0, 1, is_whole=True),
        Param("form", EXPONENTIAL, forms, 0, 3, is_whole=True),
        Param("peak", 0.20, "of the KV blocks", 0, 1),
        Param("decay", 2.5, "from the first tier to the last", 0, 50),
        Param("reserve_tokens", SPARE_TOKENS, "tokens outside the reserve", 0, 1e9, is_whole=True),
        *vector,
    )


def llumnix_params() -> tuple[Param, ...]:
    """Return the same for Llumnix's policies, which have its own reserve unless `headroom` says by tier."""
    switch = Param("headroom", BINARY, "0 off, 1 binary, 2 by tier", 0, 2, is_whole=True)
    return (switch, *headroom_params(0)[1:])


def headroom_memory(config) -> int:
    """Return the floats of memory that come first in a policy with headroom."""
    return FRACTIONS + config.tiers


@kernel
def headroom_fraction(params, p, n_tiers):
    """Return the headroom of tier p as a fraction of an instance's KV blocks."""
    if params[SWITCH] == OFF or n_tiers == 1:
        return 0.0
    if params[FORM] == RESERVE:
        return 1.0 if p == 0 else 0.0
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
    is_reserve = params[FORM] == RESERVE
    memory[LEFT_OUT] = spare_blocks(cluster, params[RESERVE_TOKENS]) if is_reserve else 0
    for p in range(n_tiers(cluster)):
        memory[FRACTIONS + p] = headroom_fraction(params, p, n_tiers(cluster))


@kernel
def tier_headroom(blocks, memory, p):
    """Return the blocks that an instance of so many blocks keeps back for tier p when p is present."""
    # the floor of what is not negative
    return int(max(0.0, blocks * memory[FRACTIONS + p] - memory[LEFT_OUT]))


@kernel
def headroom_blocks(cluster, i, memory):
    """Return the blocks that instance i keeps back: once for each tier of which it has a request."""
    total, blocks = 0, kv_blocks(cluster, i)
    if memory[SWITCH] == OFF:
        return total
    for p in range(n_tiers(cluster)):
        is_present = tier_count(cluster, i, p) > 0
        total += is_present * tier_headroom(blocks, memory, p)
    return total


@kernel
def headroom_left(cluster, i, memory, p):
    """Return the headroom that goes from instance i with a request of tier p: H_p if it has no other of that tier."""
    is_last = memory[SWITCH] != OFF and tier_count(cluster, i, p) == 1
    return tier_headroom(kv_blocks(cluster, i), memory, p) if is_last else 0


@kernel
def headroom_brought(cluster, i, memory, p):
    """Return the headroom that comes to instance i with a request of tier p: H_p if it has none of that tier yet."""
    is_first = memory[SWITCH] != OFF and tier_count(cluster, i, p) == 0
    return tier_headroom(kv_blocks(cluster, i), memory, p) if is_first else 0


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
    return max(0, kv_blocks(cluster, i) - spare_blocks(cluster, spare_tokens))


@kernel
def spare_blocks(cluster, spare_tokens):
    """Return the whole blocks that so many tokens need."""
    return -((-int(spare_tokens)) // block_size(cluster))
