"""Least-KV dispatch: the instance with the fewest KV blocks in use or about to be taken by its waiting requests.

Source: memory-aware join the shortest queue (vLLM routers). Ties: rotate, so that idle instances share.
"""

from servegym.baselines.dispatch.signals import blocks_at
from servegym.baselines.dispatch.ties import rotated, rotation
from servegym.simulator.policy import dispatch_policy
from servegym.simulator.views import HOLD, is_accepting, n_instances

MANY = 2**62


@dispatch_policy(source="least KV in use", memory=1)
def least_kv(cluster, request, params, memory, rng):
    """Return the accepting instance with the fewest KV blocks, used or waited for."""
    chosen, fewest = HOLD, MANY
    n, start = n_instances(cluster), rotation(memory, cluster)
    for offset in range(n):
        i = rotated(start, offset, n)
        count = blocks_at(cluster, i)
        if count < fewest and is_accepting(cluster, request, i):
            chosen, fewest = i, count
    return chosen
