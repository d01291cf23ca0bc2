"""The oracle estimator: the true output length, which no real router knows. For upper bounds."""

from servegym.simulator.policy import estimator
from servegym.simulator.views import output_tokens


@estimator(source="the trace itself", oracle=True)
def oracle(request, params, memory, rng):
    """Predict the true output tokens."""
    return float(output_tokens(request))
