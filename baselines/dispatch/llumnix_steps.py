"""Llumnix's current dispatch: the instance with the most remaining steps.

Remaining steps = (free above the watermark - blocks of all waiting) / (running + waiting): how many blocks each request
may still take; infinite on an empty instance. Below `busy_below` an instance is busy. Busy ones have the fewest steps,
so one is chosen only when all are busy; with hold = 1 the request then waits at the gateway. Ties: rotate.
Source: Llumnix's public code, the version after OSDI '24.
"""

import math

from servegym.baselines.dispatch.ties import rotated, rotation
from servegym.baselines.freeness import remaining_steps
from servegym.simulator.policy import Param, dispatch_policy
from servegym.simulator.views import HOLD, is_accepting, n_instances


@dispatch_policy(
    source="Llumnix after OSDI '24 (remaining steps)",
    params=(
        Param("busy_below", 10, "steps", -1e9, 1e9),
        Param("hold", 0, "0 dispatch when all are busy, 1 hold", 0, 1, is_whole=True),
    ),
    memory=1,
)
def llumnix_steps(cluster, request, params, memory, rng):
    """Return the accepting instance with the most remaining steps; HOLD if it is busy and that was asked for."""
    chosen, most = HOLD, -math.inf
    n, start = n_instances(cluster), rotation(memory, cluster)
    for offset in range(n):
        i = rotated(start, offset, n)
        if not is_accepting(cluster, request, i):
            continue
        steps = remaining_steps(cluster, i, 0)
        if steps > most:
            chosen, most = i, steps
    return HOLD if params[1] == 1 and most < params[0] else chosen
