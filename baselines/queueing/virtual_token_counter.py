"""Virtual token counter: the queue that has been served the least goes next.

Every queue has a counter of the service it got, prompt_weight * prompt + output_weight * predicted output tokens,
charged when its head is dispatched; the ready queue of the least counter is chosen, ties to the least index. A
queue that becomes active (was empty, now waits) is lifted to the least counter of the active ones, or, if none is,
to that of the queue chosen last: idle time earns no credit. Source: Sheng et al., Fairness in Serving Large
Language Models (OSDI 2024).
Left out: outputs are charged as predicted and at once, not token by token as they come, and never corrected; a choice
is charged even if the dispatch policy then holds; activity is seen at choices only; queues beyond the 1,000th share
one counter.
"""

from servegym.simulator.kernel import kernel
from servegym.simulator.policy import Param, queue_policy
from servegym.simulator.views import (
    HOLD,
    is_ready,
    n_queues,
    predicted_tokens,
    prompt_tokens,
    queue_head,
    queue_length,
)

N_COUNTERS = 1000
ACTIVE = N_COUNTERS  # where, in memory, it stands which queues were active after the last choice
LAST = 2 * N_COUNTERS  # and the queue chosen last


@kernel
def counter_of(q):
    """Return where the counter of queue q is."""
    return min(q, N_COUNTERS - 1)


@kernel
def lift_newly_active(cluster, memory):
    """Lift the counters of queues that have become active since the last choice (mutates memory)."""
    floor, is_known = memory[counter_of(int(memory[LAST]))], False
    for q in range(n_queues(cluster)):
        c = counter_of(q)
        if memory[ACTIVE + c] > 0.0 and queue_length(cluster, q) > 0:
            floor = min(floor, memory[c]) if is_known else memory[c]
            is_known = True
    for q in range(n_queues(cluster)):
        c = counter_of(q)
        if memory[ACTIVE + c] == 0.0 and queue_length(cluster, q) > 0:
            memory[c] = max(memory[c], floor)
        memory[ACTIVE + c] = 1.0 if queue_length(cluster, q) > 0 else 0.0


@queue_policy(
    source="VTC (Sheng et al., OSDI 2024)",
    params=(
        Param("prompt_weight", 1.0, "a token", 0, 1000),
        Param("output_weight", 2.0, "a token", 0, 1000),
    ),
    memory=LAST + 1,
)
def virtual_token_counter(cluster, params, memory, rng):
    """Return the ready queue that has been served the fewest weighted tokens."""
    lift_newly_active(cluster, memory)
    chosen = HOLD
    for q in range(n_queues(cluster)):
        is_less = chosen == HOLD or memory[counter_of(q)] < memory[counter_of(chosen)]
        if is_less and is_ready(cluster, q):
            chosen = q
    if chosen != HOLD:
        head, c = queue_head(cluster, chosen), counter_of(chosen)
        memory[c] += params[0] * prompt_tokens(head) + params[1] * predicted_tokens(head)
        memory[ACTIVE + c] = 1.0 if queue_length(cluster, chosen) > 1 else 0.0
        memory[LAST] = chosen
    return chosen
