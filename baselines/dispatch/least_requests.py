"""Least-requests dispatch: the instance with the fewest requests, waiting or running.

Source: join the shortest queue. Counts requests, not tokens. Ties: rotate, so that idle instances share.
"""

from servegym.baselines.dispatch.signals import requests_at
from servegym.baselines.dispatch.ties import rotated, rotation
from servegym.simulator.policy import dispatch_policy
from servegym.simulator.views import HOLD, is_accepting, n_instances

MANY = 2**62


@dispatch_policy(source="join the shortest queue", memory=1)
def least_requests(cluster, request, params, memory, rng):
    """Return the accepting instance with the fewest requests, waiting or running."""
    chosen, fewest = HOLD, MANY
    n, start = n_instances(cluster), rotation(memory, cluster)
    for offset in range(n):
        i = rotated(start, offset, n)
        count = requests_at(cluster, i)
        if count < fewest and is_accepting(cluster, request, i):
            chosen, fewest = i, count
    return chosen
