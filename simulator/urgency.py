"""Which waiting request of an instance moves first: of the largest tier, then of the fewest blocks, then the earliest.

A skew heap for every instance and tier, through `waits`; its parent links let anybody leave from the middle. Kept only
where requests may move. All hold what is fixed while a request waits: its tier, and blocks for what it knows.
Source: Sleator and Tarjan, Self-adjusting heaps (1986), top-down skew heaps.
"""

import numpy as np

from servegym.simulator.block_arithmetic import known_blocks
from servegym.simulator.calls import centre, state_at
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.state import NO_REQUEST
from servegym.simulator.tiers import tier_row


@kernel
def first_to_move(state, i, most_blocks):
    """Return the waiting request of instance i that moves first, of those that need at most so many blocks.

    NO_REQUEST if there is none.
    """
    row = tier_row(state, i)
    for p in range(state.shared[0].n_tiers - 1, -1, -1):
        r = np.int64(centre(state).first_to_move[row + p])
        if r != NO_REQUEST and known_blocks(state, state.requests[r]) <= most_blocks:
            return r
    return NO_REQUEST


@cold_kernel
def rank_waiting(state_pointer, r):
    """Let request r, which begins to wait at its instance, be found by first_to_move."""
    state = state_at(state_pointer)
    wait, roots, row = centre(state).waits[r], centre(state).first_to_move, _row(state, r)
    wait.left = wait.right = NO_REQUEST
    root = _merge(state, np.int64(roots[row]), r)
    roots[row] = root
    centre(state).waits[root].up = NO_REQUEST


@cold_kernel
def unrank_waiting(state_pointer, r):
    """Let request r, which no longer waits at its instance, be found no more."""
    state = state_at(state_pointer)
    waits, row = centre(state).waits, _row(state, r)
    up = np.int64(waits[r].up)
    below = _merge(state, np.int64(waits[r].left), np.int64(waits[r].right))
    if up == NO_REQUEST:
        centre(state).first_to_move[row] = below
    elif waits[up].left == r:
        waits[up].left = below
    else:
        waits[up].right = below
    if below != NO_REQUEST:
        waits[below].up = up


@kernel
def _row(state, r):
    return tier_row(state, state.requests[r].instance) + state.requests[r].tier


@kernel
def moves_before(state, a, b):
    """Return whether waiting request a moves before b: the larger tier, fewer blocks, the earlier one."""
    first, second = state.requests[a], state.requests[b]
    if first.tier != second.tier:
        return first.tier > second.tier
    blocks, other = known_blocks(state, first), known_blocks(state, second)
    if blocks != other:
        return blocks < other
    return first.arrival_ps < second.arrival_ps or (first.arrival_ps == second.arrival_ps and a < b)


@kernel
def _merge(state, a, b):
    """Return the root of the merged heaps a and b (either may be NO_REQUEST); its `up` is the caller's to set."""
    waits = centre(state).waits
    if a == NO_REQUEST:
        return b
    if b == NO_REQUEST:
        return a
    if moves_before(state, b, a):
        a, b = b, a
    root = a
    while True:
        child = np.int64(waits[a].right)
        waits[a].right = waits[a].left
        if child == NO_REQUEST:
            waits[a].left, waits[b].up = b, a
            return root
        if moves_before(state, b, child):
            child, b = b, child
        waits[a].left, waits[child].up = child, a
        a = child
