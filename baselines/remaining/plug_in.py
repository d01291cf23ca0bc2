"""Plug-in remaining length: predicted less streamed, and ten more once a request has outlived its prediction.

Source: Astrolabe and Block (the +10 rule).
"""

from servegym.simulator.policy import Param, remaining_policy
from servegym.simulator.views import predicted_tokens


@remaining_policy(
    source="Astrolabe: predicted - generated, else 10",
    params=(Param("outlived_tokens", 10, "tokens", 1, 2**20),),
)
def plug_in(request, generated, params, memory):
    """Return the predicted tokens that are left, or a fixed few when there are none."""
    left = predicted_tokens(request) - generated
    return float(left) if left > 0 else params[0]
