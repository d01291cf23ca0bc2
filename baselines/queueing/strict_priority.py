"""Strict priority: the most urgent queue that can be served, always.

With `queue_by = "tier"` the index of a queue is its tier. A queue waits as long as any more urgent one is ready, for
ever if need be; `trickle` guarantees it a share. Source: priority queueing without preemption (head of the line).
"""

from servegym.baselines.queueing.ready import first_ready
from servegym.simulator.policy import queue_policy


@queue_policy(source="head-of-the-line priority queueing")
def strict_priority(cluster, params, memory, rng):
    """Return the ready queue of least index, which is the most urgent tier."""
    return first_ready(cluster)
