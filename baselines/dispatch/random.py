"""Random dispatch: any accepting instance with equal chance.

Source: the usual lower bar; Vidur's random global scheduler.
"""

from servegym.simulator.policy import dispatch_policy
from servegym.simulator.random_stream import random_below
from servegym.simulator.views import HOLD, is_accepting, n_instances


@dispatch_policy(source="uniform random", name="random")
def random(cluster, request, params, memory, rng):
    """Return a uniformly chosen accepting instance."""
    n = n_instances(cluster)
    chosen = random_below(rng, n)
    if is_accepting(cluster, request, chosen):
        return chosen
    n_accepting = 0
    for i in range(n):
        if is_accepting(cluster, request, i):
            n_accepting += 1
    if n_accepting == 0:
        return HOLD
    rank = random_below(rng, n_accepting)
    for i in range(n):
        if is_accepting(cluster, request, i):
            if rank == 0:
                return i
            rank -= 1
    return HOLD
