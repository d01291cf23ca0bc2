"""Scaling: instances that start, drain and leave, and what is charged for them.

An instance that drains leaves when its last request does. Instances are lazy, so it may have left before anybody looks:
what is charged is exact all the same. Source: docs/engine.md section 13.
"""

from servegym.simulator.calls import call_catch_up, call_scaling, centre
from servegym.simulator.gateway import is_holding, view_of
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.state import (
    ABSENT,
    ACTIVE,
    ANY_ROUTER,
    COUNTS,
    DRAINING,
    LATEST_PS,
    NEVER,
    NO_INSTANCE,
    OK,
    SCALING,
    STARTING,
)


@cold_kernel
def play_scaling(state, now_ps):
    """Ask the scaling policy, carry out what it says, set the next tick; none when nothing is left to do."""
    shared, control, gateway = state.shared[0], centre(state).control[0], centre(state).gateway[0]
    if not is_left_to_do(state, now_ps):
        control.next_scaling_ps = NEVER
        return
    change = _ask_policy(state)
    if shared.error != OK:
        return
    is_late = control.next_scaling_ps > LATEST_PS - control.scaling_ps
    control.next_scaling_ps = NEVER if is_late else control.next_scaling_ps + control.scaling_ps
    if change > 0:
        has_changed = _grow(state, now_ps)
    else:
        has_changed = change < 0 and _shrink(state, now_ps)
    if has_changed:
        gateway.last_event_ps = now_ps


@kernel
def _ask_policy(state):
    policy = state.policies[SCALING]
    state.shared[0].router = ANY_ROUTER
    return call_scaling(
        policy.address,
        view_of(state),
        state.params[policy.params_begin : policy.params_end],
        state.memory[policy.memory_begin : policy.memory_end],
        state.streams[SCALING : SCALING + 1],
    )


@cold_kernel
def is_left_to_do(state, by_ps):
    """Return whether a request is to come or in the system by then, or a move under way (plays up to then)."""
    shared, control = state.shared[0], centre(state).control[0]
    is_to_come = shared.next_arrival < state.requests.shape[0] or control.n_retries > 0
    if is_to_come or control.n_moves > 0 or is_holding(state):
        return True
    for i in range(state.instances.shape[0]):
        instance = state.instances[i]
        if instance.event_ps <= by_ps:
            call_catch_up(shared.catch_up_address, shared.state_pointer, i, by_ps, COUNTS)
        if instance.n_running + instance.n_waiting + instance.n_parked > 0:
            return True
    return False


@kernel
def _grow(state, now_ps):
    """Take back the first instance that drains, else start the first that is absent; return whether there is one."""
    control = centre(state).control[0]
    for i in range(state.instances.shape[0]):
        if state.instances[i].condition == DRAINING:
            state.instances[i].condition = ACTIVE
            control.n_draining -= 1
            control.n_scale_ups += 1
            centre(state).gateway[0].release_ps = now_ps
            return True
    for i in range(state.instances.shape[0]):
        instance = state.instances[i]
        if instance.condition == ABSENT:
            instance.charged_ps += charged_span(state, instance, instance.charged_until_ps)
            instance.charged_since_ps, instance.charged_until_ps = now_ps, NEVER
            control.n_scale_ups += 1
            start_instance(state, i, now_ps)
            return True
    return False


@kernel
def charged_span(state, instance, until_ps):
    """Return what is charged from charged_since_ps to then, ps; nothing before the first arrival (int64)."""
    if instance.charged_since_ps == NEVER:
        return 0
    first_ps = state.requests[0].arrival_ps if state.requests.shape[0] > 0 else 0
    return max(0, until_ps - max(first_ps, instance.charged_since_ps))


@kernel
def _shrink(state, now_ps):
    """Drain the active instance on which the fewest run, of these the last; return whether one may be spared."""
    shared, control = state.shared[0], centre(state).control[0]
    n_active, chosen = 0, NO_INSTANCE
    for i in range(state.instances.shape[0]):
        instance = state.instances[i]
        if instance.condition != ACTIVE:
            continue
        n_active += 1
        if instance.event_ps <= now_ps:
            call_catch_up(shared.catch_up_address, shared.state_pointer, i, now_ps, COUNTS)
        if chosen == NO_INSTANCE or instance.n_running <= state.instances[chosen].n_running:
            chosen = i
    if n_active <= control.min_instances:
        return False
    state.instances[chosen].condition = DRAINING
    control.n_draining += 1
    control.n_scale_downs += 1
    return True


@kernel
def start_instance(state, i, now_ps):
    """Let an instance begin its start; without a delay it is active at once."""
    control, instance = centre(state).control[0], state.instances[i]
    instance.condition = STARTING
    instance.ready_ps = now_ps + min(control.startup_ps, LATEST_PS - now_ps)
    finish_starts(state, now_ps)


@cold_kernel
def finish_starts(state, now_ps):
    """Let all instances that are ready be active; find the next one."""
    control, gateway = centre(state).control[0], centre(state).gateway[0]
    control.next_ready_ps = NEVER
    for i in range(state.instances.shape[0]):
        instance = state.instances[i]
        if instance.condition != STARTING:
            continue
        if instance.ready_ps <= now_ps:
            instance.condition, instance.ready_ps = ACTIVE, NEVER
            gateway.release_ps = gateway.last_event_ps = now_ps
        else:
            control.next_ready_ps = min(control.next_ready_ps, instance.ready_ps)


@kernel
def leave_fleet(instance, now_ps):
    """Let an instance be absent and no longer charged from now on."""
    instance.condition, instance.charged_until_ps = ABSENT, now_ps


@cold_kernel
def retire_if_empty(state, i, since_ps):
    """Let a draining instance be absent if nobody is on it or on the way to it; since_ps: since when that is so."""
    instance = state.instances[i]
    here = instance.n_running + instance.n_waiting + instance.n_parked + instance.n_incoming
    if instance.condition == DRAINING and here == 0:
        centre(state).control[0].n_draining -= 1
        leave_fleet(instance, since_ps)


@cold_kernel
def retire_finished(state, now_ps):
    """Let draining instances be absent whose last request has finished at or before now."""
    shared = state.shared[0]
    for i in range(state.instances.shape[0]):
        instance = state.instances[i]
        if instance.condition == DRAINING:
            call_catch_up(shared.catch_up_address, shared.state_pointer, i, now_ps, COUNTS)
            retire_if_empty(state, i, instance.iteration_start_ps)


@cold_kernel
def retire_emptied(state, now_ps):
    """Let draining instances be absent that lost their last request, or began to drain, at this instant."""
    for i in range(state.instances.shape[0]):
        retire_if_empty(state, i, now_ps)
