"""Trickle: strict priority, but every tier is guaranteed a share of the dispatches.

A ready queue earns its share at every choice. Whoever has earned a dispatch goes, most earned first, then the most
urgent; if nobody has, the most urgent ready queue goes. A dispatch costs one, down to nothing; two may be saved up.
So a queue of share g that stays ready is served once in about 1 / g choices, if the shares sum to 1 or less.
Source: the minimum-rate guarantee of a strict priority scheduler (a token bucket a queue).
Left out: shares are of requests, not of tokens; a choice costs one even if the dispatch policy then holds; queues
beyond the tenth are guaranteed nothing.
"""

from servegym.baselines.queueing.ready import first_ready
from servegym.simulator.policy import Param, queue_policy
from servegym.simulator.views import HOLD, is_ready, n_queues

N_SET = 10
MOST_SAVED = 2.0  # dispatches
ROUNDING = 1e-9  # twenty times .05 need not be 1


@queue_policy(
    source="strict priority with a guaranteed rate a queue (token buckets)",
    params=tuple(
        Param(f"share_{q}", 0.05 if q else 0.0, "of dispatches", 0, 1) for q in range(N_SET)
    ),
    memory=N_SET,  # dispatches earned by each queue
)
def trickle(cluster, params, memory, rng):
    """Return the queue that has earned a dispatch, else the most urgent one that is ready."""
    chosen, most = HOLD, 1.0 - ROUNDING
    for q in range(min(n_queues(cluster), N_SET)):
        if not is_ready(cluster, q):
            continue
        memory[q] = min(memory[q] + params[q], MOST_SAVED)
        if memory[q] > most:
            chosen, most = q, memory[q]
    if chosen == HOLD:
        chosen = first_ready(cluster)
    if 0 <= chosen < N_SET:
        memory[chosen] = max(memory[chosen] - 1.0, 0.0)
    return chosen
