"""Freeness: how many more KV blocks each running request of an instance may take.

Beyond Binary Priorities: F = (M - virtual usage) / max(1, running). M: KV blocks; virtual usage: used blocks + those of
the first waiting request + headroom + 10 * M on a draining instance. Negative when virtually overfull.
Llumnix (OSDI '24) divides the blocks that are free and not waited for; its load is minus that. The two differ in whom
they count as waiting: the head, or all.
"""

import math

from servegym.baselines.headroom import headroom_blocks, holds_priority, priority_reserve
from servegym.simulator.kernel import kernel
from servegym.simulator.views import (
    free_blocks,
    head_blocks,
    is_draining,
    kv_blocks,
    n_running,
    n_waiting,
    used_blocks,
    waiting_blocks,
    watermark_blocks,
)

DRAINING_SHARE = 10  # times all its blocks: lower than any that is not draining


@kernel
def per_request(blocks, n_requests):
    """Return blocks a request, infinite for none."""
    return blocks / n_requests if n_requests > 0 else math.inf


@kernel
def virtual_free(cluster, i):
    """Return M - virtual usage of instance i, blocks, before any headroom."""
    total = kv_blocks(cluster, i)
    free = total - used_blocks(cluster, i) - head_blocks(cluster, i)
    return free - DRAINING_SHARE * total if is_draining(cluster, i) else free


@kernel
def freeness(cluster, i, memory):
    """Return F of instance i, blocks a request; memory: see headroom.py, where headroom may be switched off."""
    # In this order: used blocks bring the instance up to date for all that follows.
    free = virtual_free(cluster, i)
    return (free - headroom_blocks(cluster, i, memory)) / max(1, n_running(cluster, i))


@kernel
def available_blocks(cluster, i):
    """Return Llumnix's available blocks: free above the watermark, less those of all waiting requests."""
    free = free_blocks(cluster, i) - watermark_blocks(cluster, i)
    return free - waiting_blocks(cluster, i)


@kernel
def remaining_steps(cluster, i, reserve):
    """Return Llumnix's freeness for dispatch, blocks a request; infinite when empty; reserve: blocks held back."""
    n_requests = n_waiting(cluster, i) + n_running(cluster, i)
    return per_request(available_blocks(cluster, i) - reserve, n_requests)


@kernel
def migration_free(cluster, i, spare_tokens, has_reserve):
    """Return the numerator of Llumnix's freeness for migration: a priority request's presence takes the reserve off."""
    free = available_blocks(cluster, i)
    if has_reserve and holds_priority(cluster, i):
        free -= priority_reserve(cluster, i, spare_tokens)
    return free


@kernel
def migration_requests(cluster, i):
    """Return its denominator: running requests, and one for all that wait."""
    return n_running(cluster, i) + (1 if n_waiting(cluster, i) > 0 else 0)
