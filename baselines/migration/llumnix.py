"""Llumnix migration: from instances short of KV blocks to those with plenty, one running request a pair.

Freeness f = (free above the watermark - blocks of all waiting - reserve if it has a priority request)
/ (running + [any waiting]), infinite when empty; load = -f. Sources have a preempted request waiting, or f < T;
destinations have none and f > T; T = 3 steps. The least free source is paired with the freest destination, and so on.
Moved: the last running request that decodes and is normal (any tier but 0; with one tier, any). Draining: f = -inf.
Source: Llumnix (OSDI '24). shortest = 1: the one with the fewest blocks, as in its later version (50 ms polling).

closer = 1 (default): a move must bring the f of its pair closer together, or at T two instances would hand one request
to and fro. That is the rule of Llumnix's balanced pairing; 0: as published.
"""

import math

from servegym.baselines.dispatch.llumnix import SPARE_TOKENS
from servegym.baselines.freeness import migration_free, migration_requests, per_request
from servegym.baselines.headroom import has_priority_class
from servegym.baselines.migration.pairs import (
    DESTINATION,
    NEITHER,
    NOBODY,
    SOURCE,
    freest_destination,
    is_closer,
    least_free_source,
    write_move,
)
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, migration_policy
from servegym.simulator.views import (
    is_active,
    is_draining,
    n_decoding,
    n_instances,
    n_preempted_waiting,
    running_blocks,
    running_request,
    tier,
)

HEADROOM, SPARE, THRESHOLD, SHORTEST, CLOSER = 0, 1, 2, 3, 4


@migration_policy(
    source="Llumnix (OSDI '24)",
    params=(
        Param("headroom", 1, "0 off, 1 on", 0, 1, is_whole=True),
        Param("reserve_tokens", SPARE_TOKENS, "tokens outside the reserve", 0, 1e9, is_whole=True),
        Param("threshold", 3, "steps", -1e9, 1e9),
        Param("shortest", 0, "0 last running, 1 fewest blocks", 0, 1, is_whole=True),
        Param("closer", 1, "0 as published, 1 only if it evens out", 0, 1, is_whole=True),
    ),
    memory=lambda config: 2 * config.most_instances,
)
def llumnix(cluster, moves, params, memory, rng):
    """Return the number of moves written, at most one a pair."""
    n = n_instances(cluster)
    for i in range(n):
        memory[i] = steps_of(cluster, i, params)
        memory[n + i] = side_of(cluster, i, memory[i], params[THRESHOLD])
    n_moves = 0
    while True:
        source = least_free_source(memory, 0, n)
        destination = freest_destination(memory, 0, n)
        if source == NOBODY or destination == NOBODY:
            return n_moves
        memory[n + source] = memory[n + destination] = NEITHER
        k = victim(cluster, source, params[SHORTEST])
        if k == NOBODY:
            continue
        if params[CLOSER] == 1 and not is_draining(cluster, source):
            blocks = running_blocks(cluster, source, k)
            if not evens_out(cluster, source, destination, params, blocks):
                continue
        r = running_request(cluster, source, k).index
        n_moves = write_move(moves, n_moves, source, destination, r)


@kernel
def spare_free(cluster, i, params):
    """Return the free blocks that f divides; headroom = 0: nothing is reserved."""
    return migration_free(cluster, i, params[SPARE], params[HEADROOM] == 1)


@kernel
def steps_of(cluster, i, params):
    """Return f of instance i."""
    if is_draining(cluster, i):
        return -math.inf
    return per_request(spare_free(cluster, i, params), migration_requests(cluster, i))


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
    """Return the position of the request to move among those that run, NOBODY if there is none."""
    chosen, fewest = NOBODY, math.inf
    for k in range(n_decoding(cluster, i)):
        if has_priority_class(cluster) and tier(running_request(cluster, i, k)) == 0:
            continue
        blocks = running_blocks(cluster, i, k)
        if shortest == 0 or blocks < fewest:
            chosen, fewest = k, blocks
    return chosen


@kernel
def evens_out(cluster, source, destination, params, blocks):
    """Return whether moving a running request of so many blocks brings the f of the two closer together."""
    free_here, free_there = (
        spare_free(cluster, source, params),
        spare_free(cluster, destination, params),
    )
    here, there = migration_requests(cluster, source), migration_requests(cluster, destination)
    before = per_request(free_there, there) - per_request(free_here, here)
    after = per_request(free_there - blocks, there + 1) - per_request(free_here + blocks, here - 1)
    return is_closer(before, after)
