"""Earliest deadline first: the deadline is the arrival plus the tier's limit on TTFT.

deadline = arrival + ttft_s * (1 + tier), the default SLO of a tier. Source: Liu and Layland (1973).
Left out: requests that are late already still go first, and TPOT has no part.
"""

from servegym.simulator.policy import Param, ordering_policy
from servegym.simulator.views import arrival_s, tier


@ordering_policy(
    source="earliest deadline first (Liu and Layland 1973), deadlines by TTFT SLO",
    params=(Param("ttft_s", 1.0, "s", 0, 1e6),),
)
def edf(request, now_ps, params):
    """Return the request's deadline, s."""
    return arrival_s(request) + params[0] * (1.0 + tier(request))
