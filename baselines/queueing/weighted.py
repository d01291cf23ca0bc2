"""Weighted round-robin: slots dealt to the queues, taken in turn.

With DriftSched's weights 5, 3, 2 of premium, standard and batch the turn is PPPPPSSSBB. Slots of queues that are
empty, or whose head no instance accepts, are skipped. Queues beyond the third have one slot each by default, those
beyond the tenth always. A queue of no slots is served when no other can be. Source: DriftSched, Weighted.
Left out: a slot is spent even if the dispatch policy then holds.
"""

from servegym.baselines.queueing.ready import first_ready
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, queue_policy
from servegym.simulator.views import is_ready, n_queues

SLOTS = (5, 3, 2, 1, 1, 1, 1, 1, 1, 1)
N_SET = len(SLOTS)


@kernel
def slots_of(params, q):
    """Return the slots of queue q in one turn."""
    return int(params[q]) if q < N_SET else 1


@queue_policy(
    source="DriftSched, Weighted: slots PPPPPSSSBB",
    params=tuple(
        Param(f"slots_{q}", slots, "slots", 0, 1000, is_whole=True) for q, slots in enumerate(SLOTS)
    ),
    memory=2,  # the queue whose turn it is, and the slots of it that are spent
)
def weighted(cluster, params, memory, rng):
    """Return the queue of the next slot, those of queues that are not ready skipped."""
    n = n_queues(cluster)
    q, spent = int(memory[0]), int(memory[1])
    for _ in range(n + 1):
        if spent < slots_of(params, q) and is_ready(cluster, q):
            memory[0], memory[1] = q, spent + 1
            return q
        q, spent = (q + 1) % n, 0
    return first_ready(cluster)
