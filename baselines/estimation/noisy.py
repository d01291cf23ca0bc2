"""The noisy estimator: the true output length times a random factor, to study what a length model is worth.

predicted = actual * clip(1 + N(0, s), .1, 5), at least 1 token; one factor a request.
Source: Astrolabe's error model. Its per-instance draws and latency factor are parameters of `astrolabe`.
"""

from servegym.baselines.error_factor import error_factor
from servegym.simulator.policy import Param, estimator
from servegym.simulator.views import output_tokens


@estimator(
    source="Astrolabe: value * clip(1 + N(0, s), .1, 5)",
    params=(Param("error", 0.25, "standard deviation of the factor", 0, 5),),
    oracle=True,
)
def noisy(request, params, memory, rng):
    """Predict the true output tokens times a clipped normal factor."""
    return max(1.0, output_tokens(request) * error_factor(rng, params[0]))
