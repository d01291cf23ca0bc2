"""Block dispatch: play every instance's future with the new request in it, and take where it would finish first.

Source: Block (the fan-out version of Astrolabe, Cambridge, SYSTOR '26). Lengths are the estimator's; those of running
requests are the config's `remaining` policy's. Ties: at random.
"""

from servegym.baselines.dispatch.ties import takes_turn
from servegym.simulator.policy import dispatch_policy
from servegym.simulator.views import (
    HOLD,
    finish_within_s,
    is_accepting,
    n_instances,
    predicted_tokens,
)

NO_LIMIT_S = float("inf")


@dispatch_policy(source="Block: least predicted finish of all instances")
def block(cluster, request, params, memory, rng):
    """Return the accepting instance on which the request is predicted to finish first."""
    chosen, soonest_s, n_equal = HOLD, NO_LIMIT_S, 0
    for i in range(n_instances(cluster)):
        if not is_accepting(cluster, request, i):
            continue
        finish_s = finish_within_s(cluster, request, i, predicted_tokens(request), soonest_s)
        if finish_s < soonest_s:
            n_equal = 0
        if finish_s <= soonest_s:
            n_equal += 1
            soonest_s = finish_s
            if takes_turn(rng, n_equal):
                chosen = i
    return chosen
