"""The noisy estimator: the true output length times a random factor, to study what a length model is worth.

predicted = actual * clip(1 + N(0, s), .1, 5), at least 1 token; one factor a request.
Source: Astrolabe's error model. Left out: its second factor, on the predicted latency, and that it draws anew for every
sampled instance.
"""

from servegym.baselines.estimation.normal import random_normal
from servegym.simulator.policy import Param, estimator
from servegym.simulator.views import output_tokens

LEAST_FACTOR, MOST_FACTOR = 0.1, 5.0


@estimator(
    source="Astrolabe: value * clip(1 + N(0, s), .1, 5)",
    params=(Param("error", 0.25, "standard deviation of the factor", 0, 5),),
    oracle=True,
)
def noisy(request, params, memory, rng):
    """Predict the true output tokens times a clipped normal factor."""
    factor = 1.0 + params[0] * random_normal(rng)
    return max(1.0, output_tokens(request) * min(max(factor, LEAST_FACTOR), MOST_FACTOR))
