"""N-tier migration: from the least free instances to the freest, the least urgent requests first.

Every tick, with max F and min F of active instances: sources have F <= min + margin, if max - min >= threshold, or
they drain with work; destinations have F >= max - margin and do not drain; the lowest is paired with the highest. A
pair moves one request (a draining source all): the largest tier, then the fewest blocks, then waiting before running,
that fits the destination's free blocks and is in no move already. F: freeness with headroom (freeness.py). Source:
Beyond Binary Priorities; aggressive: every .01 s, threshold .1.

F of a draining instance is far below any other: as the min it would end ordinary moves for as long as the drain lasts.
For the same reason a draining source that can move nothing leaves its destination to the next source.

Published, a move from an instance with one request more leaves the other with one more, and it returns a tick later.
With closer = 1 (default) a move must leave |F - F'| of its pair smaller than it was, the rule of Llumnix's balanced
pairing; 0: as published. A request is never moved to where it is.

F sees nothing of a copy under way at its source, so that a source would send one request after another until the first
has arrived: over a slow link, more than can. slots = 2 (default): an instance that does not drain has so many moves out
of it at a time, and any instance so many to it; 0: any number, as published.
"""

import math

from servegym.baselines.freeness import freeness, virtual_free
from servegym.baselines.headroom import (
    FRACTIONS,
    N_HEADROOM_PARAMS,
    headroom_blocks,
    headroom_brought,
    headroom_left,
    headroom_memory,
    headroom_params,
    prepare_headroom,
)
from servegym.baselines.migration.pairs import (
    BOTH,
    DESTINATION,
    NEITHER,
    NOBODY,
    SOURCE,
    admissible_blocks,
    freest_destination,
    has_slot,
    is_closer,
    least_free_source,
    write_move,
)
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, migration_policy
from servegym.simulator.views import (
    head_blocks,
    is_active,
    is_draining,
    is_moving,
    known_blocks_of,
    least_urgent_waiting,
    n_decoding,
    n_instances,
    n_movable,
    n_running,
    n_tiers,
    n_waiting,
    request_at,
    running_blocks,
    running_request,
    tier,
    write_waiting,
)

THRESHOLD, MARGIN, CLOSER, SLOTS = range(N_HEADROOM_PARAMS, N_HEADROOM_PARAMS + 4)
NOT_RUNNING = -1


@migration_policy(
    source="Beyond Binary Priorities (migration by freeness)",
    params=(
        *headroom_params(1),
        Param("threshold", 0.3, "blocks a request", 0, 1e9),
        Param("margin", 0.1, "blocks a request", 0, 1e9),
        Param("closer", 1, "0 as published, 1 only if it evens out", 0, 1, is_whole=True),
        Param("slots", 2, "moves at a time, out and in; 0 any number", 0, 1000, is_whole=True),
    ),
    memory=lambda config: headroom_memory(config) + 2 * config.most_instances,
)
def n_tier(cluster, moves, params, memory, rng):
    """Return the number of moves written, one a pair of a least free and a freest instance."""
    prepare_headroom(cluster, params, memory)
    n, begin = n_instances(cluster), FRACTIONS + n_tiers(cluster)
    least, most = score(cluster, memory, begin)
    low = least + params[MARGIN] if most - least >= params[THRESHOLD] else -math.inf
    mark_sides(cluster, memory, begin, low, most - params[MARGIN], params[SLOTS])
    n_moves = 0
    while True:
        source = least_free_source(memory, begin, n)
        destination = freest_destination(memory, begin, n)
        if source == NOBODY or destination == NOBODY:
            return n_moves
        if memory[begin + source] >= memory[begin + destination]:  # also where they are one
            return n_moves
        memory[begin + n + source] = NEITHER
        n_before = n_moves
        if is_draining(cluster, source):
            n_moves = move_all(cluster, source, destination, moves, n_moves)
            if n_moves == n_before:
                continue
        else:
            n_moves = move_one(cluster, source, destination, params, memory, moves, n_moves)
        memory[begin + n + destination] = NEITHER


@kernel
def score(cluster, memory, begin):
    """Return the least and the largest F of active instances; F of those that drain is noted too (mutates memory)."""
    least, most = math.inf, -math.inf
    for i in range(n_instances(cluster)):
        if is_active(cluster, i):
            memory[begin + i] = free = freeness(cluster, i, memory)
            least, most = min(least, free), max(most, free)
        elif is_draining(cluster, i):
            memory[begin + i] = freeness(cluster, i, memory)
    return least, most


@kernel
def mark_sides(cluster, memory, begin, low, high, slots):
    """Mark sources (F <= low, or draining, with something to move) and destinations (F >= high) (mutates memory)."""
    n = n_instances(cluster)
    for i in range(n):
        mark = NEITHER
        if is_draining(cluster, i):
            mark = SOURCE if n_movable(cluster, i) > 0 else NEITHER
        elif is_active(cluster, i):
            is_source = memory[begin + i] <= low and n_movable(cluster, i) > 0
            is_source = is_source and has_slot(cluster, i, SOURCE, slots)
            is_destination = memory[begin + i] >= high
            is_destination = is_destination and has_slot(cluster, i, DESTINATION, slots)
            mark = SOURCE if is_source else NEITHER
            if is_destination:
                mark = BOTH if is_source else DESTINATION
        memory[begin + n + i] = mark


@kernel
def move_all(cluster, source, destination, moves, n):
    """Write moves of all that may move: who waits, and decoding ones as long as they fit; return how many there are."""
    n = write_waiting(cluster, source, destination, moves, n)
    left = admissible_blocks(cluster, destination)
    for k in range(n_decoding(cluster, source)):
        r, blocks = running_request(cluster, source, k).index, running_blocks(cluster, source, k)
        if blocks <= left and not is_moving(cluster, r):
            left -= blocks
            n = write_move(moves, n, source, destination, r)
    return n


@kernel
def move_one(cluster, source, destination, params, memory, moves, n):
    """Write a move of the least urgent request that fits, if the rule lets it; return how many there are."""
    r, k = least_urgent(cluster, source, destination)
    if r == NOBODY:
        return n
    if params[CLOSER] == 1 and not evens_out(cluster, source, destination, memory, r, k):
        return n
    return write_move(moves, n, source, destination, r)


@kernel
def least_urgent(cluster, source, destination):
    """Return the least urgent request that fits the destination, or NOBODY, and its position, or NOT_RUNNING.

    One in a move already is left out. Of those that wait only the first to move is looked at: if it was preempted in a
    move that is under way still, running ones are left.
    """
    most_blocks = admissible_blocks(cluster, destination)
    r, k = least_urgent_waiting(cluster, source, most_blocks), NOT_RUNNING
    if r != NOBODY and is_moving(cluster, r):
        r = NOBODY
    largest_tier, fewest = -1, 0
    if r != NOBODY:
        largest_tier = tier(request_at(cluster, r))
        fewest = known_blocks_of(cluster, request_at(cluster, r))
    for position in range(n_decoding(cluster, source)):
        request = running_request(cluster, source, position)
        if tier(request) < largest_tier:
            continue
        blocks = running_blocks(cluster, source, position)
        is_first = tier(request) > largest_tier or blocks < fewest
        if is_first and blocks <= most_blocks and not is_moving(cluster, request.index):
            r, k, largest_tier, fewest = request.index, position, tier(request), blocks
    return r, k


@kernel
def evens_out(cluster, source, destination, memory, r, k):
    """Return whether moving request r, at position k or waiting, brings the freeness of the two closer together.

    Of those that wait F sees the first only: where it sees no change, the source's queue must stay the longer one, or
    as long.
    """
    before = freeness(cluster, destination, memory) - freeness(cluster, source, memory)
    p = tier(request_at(cluster, r))
    free_here = virtual_free(cluster, source) - headroom_blocks(cluster, source, memory)
    free_there = virtual_free(cluster, destination) - headroom_blocks(cluster, destination, memory)
    free_here += headroom_left(cluster, source, memory, p)
    free_there -= headroom_brought(cluster, destination, memory, p)
    running_here, running_there = n_running(cluster, source), n_running(cluster, destination)
    if k == NOT_RUNNING:
        if n_waiting(cluster, source) == 1:
            free_here += head_blocks(cluster, source)
        if n_waiting(cluster, destination) == 0:
            free_there -= known_blocks_of(cluster, request_at(cluster, r))
    else:
        blocks = running_blocks(cluster, source, k)
        free_here, running_here = free_here + blocks, running_here - 1
        free_there, running_there = free_there - blocks, running_there + 1
    after = free_there / max(1, running_there) - free_here / max(1, running_here)
    if k == NOT_RUNNING and after == before:
        return n_waiting(cluster, destination) + 1 < n_waiting(cluster, source)
    return is_closer(before, after)
