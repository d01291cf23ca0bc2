"""Llumnix migration: from instances short of KV blocks to those with plenty, one running request a pair.

Freeness f = (free above the watermark - blocks of all waiting - reserve if it has a priority request)
/ (running + [any waiting]), infinite when empty; load = -f. Sources have a preempted request waiting, or f < T;
destinations have none and f > T; T = 3 steps. The least free source is paired with the freest destination, and so on.
Moved: the last running request that decodes and is normal (any tier but 0; with one tier, any) and in no move already.
Draining: f = -inf.
Source: Llumnix (OSDI '24). shortest = 1: the one with the fewest blocks, as in its later version (50 ms polling).

headroom = 2: for the reserve, the headroom of every tier present (headroom.py). slots = 1, as in its later version: an
instance has one move at a time out of it and one to it, a draining one too.

closer = 1 (default): a move must bring the f of its pair closer together, or at T two instances would hand one request
to and fro. That is the rule of Llumnix's balanced pairing; 0: as published.
"""

import math

from servegym.baselines.freeness import (
    available_blocks,
    migration_free,
    migration_requests,
    per_request,
)
from servegym.baselines.headroom import (
    BINARY,
    BY_TIER,
    FRACTIONS,
    N_HEADROOM_PARAMS,
    RESERVE_TOKENS,
    SWITCH,
    has_priority_class,
    headroom_blocks,
    headroom_brought,
    headroom_left,
    headroom_memory,
    llumnix_params,
    prepare_headroom,
)
from servegym.baselines.migration.pairs import (
    DESTINATION,
    NEITHER,
    NOBODY,
    SOURCE,
    freest_destination,
    has_slot,
    is_closer,
    least_free_source,
    write_move,
)
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, migration_policy
from servegym.simulator.views import (
    is_active,
    is_draining,
    is_moving,
    n_decoding,
    n_instances,
    n_preempted_waiting,
    n_tiers,
    running_blocks,
    running_request,
    tier,
)

THRESHOLD, SHORTEST, CLOSER, SLOTS = range(N_HEADROOM_PARAMS, N_HEADROOM_PARAMS + 4)


@migration_policy(
    source="Llumnix (OSDI '24)",
    params=(
        *llumnix_params(),
        Param("threshold", 3, "steps", -1e9, 1e9),
        Param("shortest", 0, "0 last running, 1 fewest blocks", 0, 1, is_whole=True),
        Param("closer", 1, "0 as published, 1 only if it evens out", 0, 1, is_whole=True),
        Param("slots", 0, "moves at a time, out and in; 0 any number", 0, 1000, is_whole=True),
    ),
    memory=lambda config: headroom_memory(config) + 2 * config.most_instances,
)
def llumnix(cluster, moves, params, memory, rng):
    """Return the number of moves written, at most one a pair."""
    if params[SWITCH] == BY_TIER:
        prepare_headroom(cluster, params, memory)
    n, begin = n_instances(cluster), FRACTIONS + n_tiers(cluster)
    for i in range(n):
        memory[begin + i] = steps_of(cluster, i, params, memory)
        side = side_of(cluster, i, memory[begin + i], params[THRESHOLD])
        memory[begin + n + i] = side if has_slot(cluster, i, side, params[SLOTS]) else NEITHER
    n_moves = 0
    while True:
        source = least_free_source(memory, begin, n)
        destination = freest_destination(memory, begin, n)
        if source == NOBODY or destination == NOBODY:
            return n_moves
        memory[begin + n + source] = memory[begin + n + destination] = NEITHER
        k = victim(cluster, source, params[SHORTEST])
        if k == NOBODY:
            continue
        is_free_to = params[CLOSER] == 0 or is_draining(cluster, source)
        if not (is_free_to or evens_out(cluster, source, destination, params, memory, k)):
            continue
        r = running_request(cluster, source, k).index
        n_moves = write_move(moves, n_moves, source, destination, r)


@kernel
def spare_free(cluster, i, params, memory):
    """Return the free blocks that f divides; headroom = 0: nothing is reserved."""
    if params[SWITCH] == BY_TIER:
        return available_blocks(cluster, i) - headroom_blocks(cluster, i, memory)
    return migration_free(cluster, i, params[RESERVE_TOKENS], params[SWITCH] == BINARY)


@kernel
def steps_of(cluster, i, params, memory):
    """Return f of instance i."""
    if is_draining(cluster, i):
        return -math.inf
    return per_request(spare_free(cluster, i, params, memory), migration_requests(cluster, i))


@kernel
def side_of(cluster, i, steps, threshold):
    """Return whether instance i is a source, a destination or neither."""
    if is_draining(cluster, i):
        return SOURCE
    if not is_active(cluster, i):
        return NEITHER
    if n_preempted_waiting(cluster, i) > 0 or steps < threshold:
        return SOURCE
    return DESTINATION if steps > threshold else NEITHER


@kernel
def victim(cluster, i, shortest):
    """Return the position of the request to move among those that run, NOBODY if there is none.

    Of equally short ones the first; never one that is in a move already.
    """
    chosen, fewest = NOBODY, math.inf
    for k in range(n_decoding(cluster, i) - 1, -1, -1):
        request = running_request(cluster, i, k)
        if has_priority_class(cluster) and tier(request) == 0:
            continue
        blocks = running_blocks(cluster, i, k)
        if blocks > fewest or is_moving(cluster, request.index):
            continue
        if shortest == 0:
            return k
        chosen, fewest = k, blocks
    return chosen


@kernel
def evens_out(cluster, source, destination, params, memory, k):
    """Return whether moving the k-th running request brings the f of the two closer together."""
    free_here = spare_free(cluster, source, params, memory)
    free_there = spare_free(cluster, destination, params, memory)
    here, there = migration_requests(cluster, source), migration_requests(cluster, destination)
    before = per_request(free_there, there) - per_request(free_here, here)
    blocks, p = running_blocks(cluster, source, k), tier(running_request(cluster, source, k))
    free_here, free_there = free_here + blocks, free_there - blocks
    if params[SWITCH] == BY_TIER:
        free_here += headroom_left(cluster, source, memory, p)
        free_there -= headroom_brought(cluster, destination, memory, p)
    after = per_request(free_there, there + 1) - per_request(free_here, here - 1)
    return is_closer(before, after)
