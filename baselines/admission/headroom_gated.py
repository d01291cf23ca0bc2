"""Headroom-gated admission: the KV blocks kept for more urgent tiers are not given to less urgent ones.

A request of tier p of K is accepted if some instance that accepts it has
    free - waiting - ceil(prompt / block_size) >= H_0 + ... + H_(p-1)
    H_q = floor(M * peak * exp(-decay * q / (K - 1)))
or is idle (else a request larger than the rest would never be); otherwise it is held and asked about again each
round. What was accepted and still stands in a queue counts as on the instance that had room for it, so that a round
does not give the same blocks twice.
Source: Beyond Binary Priorities, headroom (peak .20, decay 2.5), here as an admission gate.
Left out: the dispatch policy may choose another instance than the one that had room.
"""

import math

from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, admission_policy
from servegym.simulator.views import (
    ACCEPT,
    HOLD,
    block_size,
    free_blocks,
    is_accepting,
    kv_blocks,
    n_instances,
    n_queues,
    n_running,
    n_tiers,
    n_waiting,
    prompt_tokens,
    queue_length,
    tier,
    waiting_blocks,
)

PEAK, DECAY = 0, 1


@kernel
def headroom_above(blocks, p, k, params):
    """Return the blocks of an instance that are kept for tiers 0 .. p - 1 of k."""
    kept = 0
    for q in range(p):
        kept += int(blocks * params[PEAK] * math.exp(-params[DECAY] * q / (k - 1)))
    return kept


@kernel
def forget_placed(cluster, memory):
    """Forget what was accepted once no queue holds any of it (mutates memory)."""
    for q in range(n_queues(cluster)):
        if queue_length(cluster, q) > 0:
            return
    for i in range(memory.shape[0]):
        memory[i] = 0.0


@admission_policy(
    source="headroom by tier (Beyond Binary Priorities) as an admission gate",
    params=(
        Param("peak", 0.20, "of the KV blocks", 0, 0.5),
        Param("decay", 2.5, "over all tiers", 0, 10),
    ),
    memory=lambda config: config.most_instances,  # blocks accepted and not placed yet, by instance
)
def headroom_gated(cluster, request, params, memory, rng):
    """Accept if some instance has room for the prompt beside the headroom of more urgent tiers, else hold."""
    forget_placed(cluster, memory)
    need = (prompt_tokens(request) + block_size(cluster) - 1) // block_size(cluster)
    for i in range(n_instances(cluster)):
        if not is_accepting(cluster, request, i):
            continue
        accepted = int(memory[i])
        kept = headroom_above(kv_blocks(cluster, i), tier(request), n_tiers(cluster), params)
        spare = free_blocks(cluster, i) - waiting_blocks(cluster, i) - accepted - need
        is_idle = accepted + n_waiting(cluster, i) + n_running(cluster, i) == 0
        if spare >= kept or is_idle:
            memory[i] += need
            return ACCEPT
    return HOLD
