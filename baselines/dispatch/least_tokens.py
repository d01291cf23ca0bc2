"""Least-tokens dispatch: the instance whose requests have the fewest prompt and predicted output tokens.

Source: size-aware join the shortest queue; the lengths are the estimator's. Ties: rotate, so that idle instances share.
"""

from servegym.baselines.dispatch.signals import tokens_at
from servegym.baselines.dispatch.ties import rotated, rotation
from servegym.simulator.policy import dispatch_policy
from servegym.simulator.views import HOLD, is_accepting, n_instances

MANY = 2**62


@dispatch_policy(source="least predicted tokens", memory=1)
def least_tokens(cluster, request, params, memory, rng):
    """Return the accepting instance with the fewest prompt and predicted tokens."""
    chosen, fewest = HOLD, MANY
    n, start = n_instances(cluster), rotation(memory, cluster)
    for offset in range(n):
        i = rotated(start, offset, n)
        count = tokens_at(cluster, i)
        if count < fewest and is_accepting(cluster, request, i):
            chosen, fewest = i, count
    return chosen
