"""Aging: tiers, but whoever waits grows more urgent.

score = (1 + tier) - rate * wait, least first. Source: DriftSched (score = 1|2|3 - .01 * wait; its tenants premium,
standard and batch are tiers 0, 1 and 2). With one rate for all it is the static order arrival + tier / rate, 100 s
a tier: the score of two requests differs by the same at any time. So a request waits for those of a more urgent
tier that arrive up to 100 s a tier after it, and for no later one.
"""

from servegym.simulator.policy import Param, ordering_policy
from servegym.simulator.views import arrival_s, tier


@ordering_policy(
    source="DriftSched, Aging: score = 1|2|3 - .01 * wait",
    params=(Param("rate", 0.01, "tiers/s", 0, 1000),),
    time_dependent=True,
)
def aging(request, now_ps, params):
    """Return the tier's rank, less a credit for the time waited."""
    return 1.0 + tier(request) - params[0] * (now_ps * 1e-12 - arrival_s(request))
