"""Unprocessed-tokens dispatch: the instance with the fewest tokens still to be computed.

Prompt and predicted output tokens of all its requests, less those that running ones have in KV. A preempted request
counts in full again, one that outlives its prediction counts negative. Ties: rotate.
Source: the unprocessed-tokens baseline of Astrolabe (Block).
"""

import math

from servegym.baselines.dispatch.ties import rotated, rotation
from servegym.simulator.policy import dispatch_policy
from servegym.simulator.views import (
    HOLD,
    context_tokens,
    held_tokens,
    is_accepting,
    n_instances,
)


@dispatch_policy(source="Astrolabe's unprocessed tokens", memory=1)
def unprocessed_tokens(cluster, request, params, memory, rng):
    """Return the accepting instance with the fewest prompt and predicted tokens not in KV."""
    chosen, fewest = HOLD, math.inf
    n, start = n_instances(cluster), rotation(memory, cluster)
    for offset in range(n):
        i = rotated(start, offset, n)
        tokens = held_tokens(cluster, i) - context_tokens(cluster, i)
        if tokens < fewest and is_accepting(cluster, request, i):
            chosen, fewest = i, tokens
    return chosen
