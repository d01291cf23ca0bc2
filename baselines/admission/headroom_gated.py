"""Headroom-gated admission: the KV blocks kept for more urgent tiers are not given to less urgent ones.

A request of tier p is accepted if some instance that accepts it has
    free - waiting - queued - ceil(prompt / block_size) >= H_0 + ... + H_(p-1)
or has nothing and is promised nothing (else a request larger than the rest would never be); otherwise it is held and
asked about again each round. H: headroom.py. Queued: what was accepted and no instance has yet, by each queue's blocks;
they fill instances in order of index, each up to its room, an idle one up to all it has.
Source: Beyond Binary Priorities, headroom (peak .20, decay 2.5), here as an admission gate.
Left out: the dispatch policy may choose another instance than the one that had room.
"""

from servegym.baselines.headroom import (
    headroom_memory,
    headroom_params,
    prepare_headroom,
    tier_headroom,
)
from servegym.baselines.readings import queued_blocks
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import admission_policy
from servegym.simulator.views import (
    ACCEPT,
    HOLD,
    free_blocks,
    is_accepting,
    known_blocks_of,
    kv_blocks,
    n_instances,
    n_running,
    n_waiting,
    tier,
    waiting_blocks,
)


@kernel
def headroom_above(blocks, p, memory):
    """Return the blocks of an instance that are kept for tiers 0 .. p - 1."""
    kept = 0
    for q in range(p):
        kept += tier_headroom(blocks, memory, q)
    return kept


@admission_policy(
    source="headroom by tier (Beyond Binary Priorities) as an admission gate",
    params=headroom_params(1),
    memory=headroom_memory,
)
def headroom_gated(cluster, request, params, memory, rng):
    """Accept if some instance has room for the prompt beside the headroom of more urgent tiers, else hold."""
    prepare_headroom(cluster, params, memory)
    need, queued = known_blocks_of(cluster, request), queued_blocks(cluster)
    for i in range(n_instances(cluster)):
        if not is_accepting(cluster, request, i):
            continue
        spare = free_blocks(cluster, i) - waiting_blocks(cluster, i)
        room = spare - headroom_above(kv_blocks(cluster, i), tier(request), memory)
        is_idle = n_waiting(cluster, i) + n_running(cluster, i) == 0
        if room - queued >= need or (is_idle and queued == 0):
            return ACCEPT
        queued -= min(queued, max(0, spare if is_idle else room))
    return HOLD
