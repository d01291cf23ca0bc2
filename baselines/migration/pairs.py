"""Pairing instances for migration: the next source with the next destination, by how free they are.

Both rules that are compared zip extremes: the least free source with the freest destination, then the second of each.
Scores stand in a policy's memory: M freenesses, then M marks of what each may still be.
"""

import math

from servegym.simulator.kernel import kernel
from servegym.simulator.views import free_blocks, n_incoming, n_outgoing, watermark_blocks

NEITHER, SOURCE, DESTINATION, BOTH = 0, 1, 2, 3  # BOTH = SOURCE + DESTINATION
NOBODY = -1


@kernel
def least_free_source(memory, begin, n):
    """Return the source with the least score, the first of equals; NOBODY if none is left.

    memory[begin:begin + n]: scores; the n after: marks.
    """
    chosen, least = NOBODY, math.inf
    for i in range(n):
        mark = memory[begin + n + i]
        if mark % 2 == SOURCE and (chosen == NOBODY or memory[begin + i] < least):
            chosen, least = i, memory[begin + i]
    return chosen


@kernel
def freest_destination(memory, begin, n):
    """Return the destination with the largest score, the first of equals; NOBODY if none is left."""
    chosen, most = NOBODY, -math.inf
    for i in range(n):
        mark = memory[begin + n + i]
        if mark >= DESTINATION and (chosen == NOBODY or memory[begin + i] > most):
            chosen, most = i, memory[begin + i]
    return chosen


@kernel
def has_slot(cluster, i, side, slots):
    """Return whether instance i may be on that side of one more move; slots = 0: of any number."""
    n = n_outgoing(cluster, i) if side == SOURCE else n_incoming(cluster, i)
    return slots == 0 or n < slots


@kernel
def admissible_blocks(cluster, i):
    """Return the blocks that a request may bring to instance i: free, not reserved, above the watermark."""
    return free_blocks(cluster, i) - watermark_blocks(cluster, i)


@kernel
def write_move(moves, n, source, destination, r):
    """Write a move behind the n in moves, if there is room; return their number (mutates moves)."""
    if n == moves.shape[0]:
        return n
    moves[n, 0], moves[n, 1], moves[n, 2] = source, destination, r
    return n + 1


@kernel
def is_closer(gap_before, gap_after):
    """Return whether a move leaves two instances closer than they were: then no rule moves it back."""
    return abs(gap_after) < abs(gap_before)
