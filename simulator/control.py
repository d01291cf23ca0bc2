"""What acts on several instances at once, in the order of one instant: faults, starts, moves, clients, control ticks.

One function a part of the instant (event_loop.py): before the arrivals, after the releases. Refreshes of metrics come
between, so those of the instant wait while the first part is played. Source: docs/engine.md section 2.
"""

from servegym.simulator.calls import centre
from servegym.simulator.clients import cancel_due, forget_ended
from servegym.simulator.faults import next_fault_ps, play_faults
from servegym.simulator.kernel import cold_kernel
from servegym.simulator.migration import play_rebalance, play_stages
from servegym.simulator.scaling import (
    finish_starts,
    play_scaling,
    retire_emptied,
    retire_finished,
)
from servegym.simulator.state import OK


@cold_kernel
def play_control(state, now_ps):
    """Play what comes before the arrivals of an instant: faults, ready instances, stages of moves, cancellations."""
    shared, control = state.shared[0], centre(state).control[0]
    shared.is_early = 1
    if control.n_draining > 0:
        retire_finished(state, now_ps)
    play_faults(state, now_ps)
    if control.next_ready_ps <= now_ps:
        finish_starts(state, now_ps)
    if control.next_stage_ps == now_ps:
        play_stages(state)
    cancel_due(state, now_ps)
    if control.n_draining > 0:
        retire_emptied(state, now_ps)
    shared.is_early = 0


@cold_kernel
def play_ticks(state, now_ps, next_arrival_ps):
    """Play the control ticks of an instant: scaling, then migration; nobody arrives before next_arrival_ps."""
    control = centre(state).control[0]
    if control.next_scaling_ps == now_ps and state.shared[0].error == OK:
        if control.n_draining > 0:
            retire_finished(state, now_ps)
        play_scaling(state, now_ps)
    if control.next_rebalance_ps == now_ps and state.shared[0].error == OK:
        play_rebalance(state, min(next_arrival_ps, next_event_ps(state)))
    if control.n_draining > 0 and state.shared[0].error == OK:
        retire_emptied(state, now_ps)


@cold_kernel
def plan(state):
    """Find the next instant at which anything but arrivals, releases and iterations happens (sets control.next_ps)."""
    control = centre(state).control[0]
    control.next_ps = min(
        next_event_ps(state),
        control.next_scaling_ps,
        control.next_rebalance_ps,
    )


@cold_kernel
def next_event_ps(state):
    """Return the next control instant that is no tick: a fault, an instance ready, a stage, a client's timer."""
    control = centre(state).control[0]
    return min(
        next_fault_ps(state), control.next_ready_ps, control.next_stage_ps, forget_ended(state)
    )
