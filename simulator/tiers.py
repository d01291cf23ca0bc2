"""How many requests of every tier are where: kept when there are several tiers, or requests move.

`tiers` holds K counts an instance, true ones; with stale metrics then K an instance as last seen, and K a view; last
the K of all queues of the gateway.
"""

from servegym.simulator.calls import centre
from servegym.simulator.kernel import kernel


@kernel
def tier_row(state, i):
    """Return where instance i's true counts begin."""
    return i * state.shared[0].n_tiers


@kernel
def seen_row(state, i):
    """Return where instance i's counts of the last refresh begin."""
    return (state.instances.shape[0] + i) * state.shared[0].n_tiers


@kernel
def view_row(state, view):
    """Return where the counts of one router's own placements since begin."""
    return (2 * state.instances.shape[0] + view) * state.shared[0].n_tiers


@kernel
def count_tier(state, i, request, sign):
    """Let a request come to (+1) or leave (-1) instance i (mutates tiers)."""
    if state.shared[0].counts_tiers:
        state.tiers[tier_row(state, i) + request.tier] += sign


@kernel
def queued_row(state):
    """Return where the counts of the gateway's queues begin."""
    return state.tiers.shape[0] - state.shared[0].n_tiers


@kernel
def count_queued(state, request, sign):
    """Let a request enter (+1) or leave (-1) the gateway's queues (mutates gateway and tiers)."""
    centre(state).gateway[0].n_queued += sign
    if state.shared[0].counts_tiers:
        state.tiers[queued_row(state) + request.tier] += sign
