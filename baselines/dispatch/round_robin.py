"""Round-robin dispatch: instance after instance, whatever they hold.

Source: Vidur's round_robin global scheduler (request i to instance i mod M). Instances that cannot hold the request
are passed over.
"""

from servegym.baselines.dispatch.ties import rotated
from servegym.simulator.policy import dispatch_policy
from servegym.simulator.views import HOLD, is_accepting, n_instances


@dispatch_policy(source="round robin", memory=1)
def round_robin(cluster, request, params, memory, rng):
    """Return the next accepting instance after the last one chosen."""
    n, start = n_instances(cluster), int(memory[0])
    for offset in range(n):
        i = rotated(start, offset, n)
        if is_accepting(cluster, request, i):
            memory[0] = i + 1 if i + 1 < n else 0
            return i
    return HOLD
