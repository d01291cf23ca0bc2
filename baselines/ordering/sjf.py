"""Shortest job first: the fewest prompt and predicted output tokens, ties by arrival.

Source: DriftSched's SJF (least n_in + T_est). Long requests may wait for ever under load.
"""

from servegym.simulator.policy import ordering_policy
from servegym.simulator.views import predicted_tokens, prompt_tokens


@ordering_policy(source="DriftSched, SJF: least n_in + T_est")
def sjf(request, now_ps, params):
    """Return the request's prompt and predicted output tokens."""
    return float(prompt_tokens(request) + predicted_tokens(request))
