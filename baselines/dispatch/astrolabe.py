"""Astrolabe dispatch: play the futures of a few random instances, and take where the request would finish first.

Source: Astrolabe (Cambridge, SYSTOR '26); samples = all is Block. The paper's model of errors: the request's predicted
length on each sampled instance, and each predicted latency, are multiplied by clip(1 + N(0, s), .1, 5), drawn
independently. Running requests keep their own predictions. Ties, and no answer from anybody: at random.
"""

from servegym.baselines.dispatch.power_of_two import MOST_SAMPLES, sample_instance
from servegym.baselines.dispatch.ties import takes_turn
from servegym.baselines.error_factor import error_factor
from servegym.simulator.policy import Param, dispatch_policy
from servegym.simulator.views import HOLD, finish_within_s, predicted_tokens

NO_LIMIT_S = float("inf")


@dispatch_policy(
    source="Astrolabe: least predicted finish of N sampled instances",
    params=(
        Param("samples", 2, "instances", 1, MOST_SAMPLES, is_whole=True),
        Param("length_error", 0, "of the predicted tokens", 0, 10),
        Param("latency_error", 0, "of the predicted latency", 0, 10),
    ),
    memory=MOST_SAMPLES,
)
def astrolabe(cluster, request, params, memory, rng):
    """Return the sampled instance on which the request is predicted to finish first."""
    n_sampled = 0
    while (
        n_sampled < params[0] and sample_instance(cluster, request, memory, rng, n_sampled) != HOLD
    ):
        n_sampled += 1
    chosen, soonest_s, n_equal = HOLD, NO_LIMIT_S, 0
    for k in range(n_sampled):
        i = int(memory[k])
        tokens = predicted_tokens(request) * error_factor(rng, params[1])
        factor = error_factor(rng, params[2])
        finish_s = factor * finish_within_s(cluster, request, i, tokens, soonest_s / factor)
        if finish_s < soonest_s:
            n_equal = 0
        if finish_s <= soonest_s:
            n_equal += 1
            soonest_s = finish_s
            if takes_turn(rng, n_equal):
                chosen = i
    return chosen
