"""Shortest job first with aging: every second waited counts as a few tokens less.

n_in + T_est - rate * wait, least first; all grow at one rate, so the order is that of n_in + T_est + rate *
arrival, which never changes and is what is computed. A request of s tokens is passed only by those that arrive
within s / rate seconds after it: nobody starves. rate = 0 is sjf; a large rate is fcfs.
Source: aging of priorities (Silberschatz, Operating System Concepts, priority scheduling) on DriftSched's SJF.
"""

from servegym.simulator.policy import Param, ordering_policy
from servegym.simulator.views import arrival_s, predicted_tokens, prompt_tokens


@ordering_policy(
    source="SJF (DriftSched) with aging (Silberschatz et al.)",
    params=(Param("rate", 100.0, "tokens/s", 0, 1e6),),
)
def sjf_aging(request, now_ps, params):
    """Return prompt and predicted output tokens, plus tokens for a late arrival."""
    tokens = prompt_tokens(request) + predicted_tokens(request)
    return tokens + params[0] * arrival_s(request)
