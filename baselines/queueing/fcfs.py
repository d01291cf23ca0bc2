"""First come, first served over all queues: of the heads that can be served, the one that arrived first.

Source: FCFS. With order "fcfs" this is what the gateway does without a queue policy; with another order each queue is
kept by that order, and its head waits its turn by arrival. Ties at one instant go by place in the trace.
"""

from servegym.simulator.policy import queue_policy
from servegym.simulator.views import HOLD, is_ready, n_queues, queue_head


@queue_policy(source="first come, first served")
def fcfs(cluster, params, memory, rng):
    """Return the ready queue whose head arrived first."""
    chosen = HOLD
    for q in range(n_queues(cluster)):
        if not is_ready(cluster, q):
            continue
        # requests are numbered by (arrival, place in the trace)
        if chosen == HOLD or queue_head(cluster, q).index < queue_head(cluster, chosen).index:
            chosen = q
    return chosen
