"""The gateway: queues of requests that no instance has yet, and the rounds that dispatch from them.

Source: docs/engine.md section 10. A round takes heads of queues one after the other while some instance accepts one;
a policy may hold. With pull (max_local_waiting = 0) the waiting happens here; with push only what nobody takes waits.
"""

import numpy as np

from servegym.simulator.calls import (
    call_admission,
    call_catch_up,
    call_dispatch,
    call_queue,
    centre,
)
from servegym.simulator.completions import show_completions
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.placement import place
from servegym.simulator.state import (
    ADMISSION,
    ANY_ROUTER,
    ASKED,
    AT_GATEWAY,
    BAD_INSTANCE,
    BAD_QUEUE,
    COUNTS,
    DISPATCH,
    HELD,
    NEVER,
    NO_INSTANCE,
    NO_REQUEST,
    OK,
    QUEUEING,
    REJECTED,
    Cluster,
    Request,
)
from servegym.simulator.tally import tally_end
from servegym.simulator.tiers import count_queued
from servegym.simulator.views import ACCEPT, HOLD, has_taker, is_accepting
from servegym.simulator.waiting import (
    append_held,
    comes_before,
    pop_queue,
    push_waiting,
    remove_queued,
    reorder_waiting,
)

NO_QUEUE, HELD_BACK = -1, -2  # no queue is ready; a policy holds


@kernel
def view_of(state):
    """Return the part of the state that policies see."""
    return Cluster(state.shared, state.engines, state.instances, state.views)


@kernel
def is_holding(state):
    """Return whether any request waits at the gateway."""
    gateway = centre(state).gateway[0]
    return gateway.n_queued + gateway.n_held > 0


@kernel
def set_router(state, r):
    """Let the request's router decide."""
    shared = state.shared[0]
    shared.router = r % shared.n_routers if shared.n_routers > 1 else 0


@kernel
def choose_instance(state, r):
    """Ask the dispatch policy for an instance; NO_INSTANCE if it holds, or if its answer stops the run."""
    shared, policy = state.shared[0], state.policies[DISPATCH]
    request = Request(state.requests, np.int64(r))
    i = call_dispatch(
        policy.address,
        view_of(state),
        request,
        state.params[policy.params_begin : policy.params_end],
        state.memory[policy.memory_begin : policy.memory_end],
        state.streams[DISPATCH : DISPATCH + 1],
    )
    if shared.error != OK or i == HOLD:
        return NO_INSTANCE
    if not (0 <= i < state.instances.shape[0] and is_accepting(view_of(state), request, i)):
        shared.error, shared.error_instance, shared.error_request = BAD_INSTANCE, i, r
        return NO_INSTANCE
    return i


@kernel
def enqueue(state, r):
    """Let request r wait in its queue at the gateway."""
    request = state.requests[r]
    request.instance, request.place = NO_INSTANCE, AT_GATEWAY
    push_waiting(state, centre(state).queues[queue_of(state, request)], r)
    count_queued(state, request, 1)


@kernel
def queue_of(state, request):
    """Return the index of the queue that the request waits in."""
    if centre(state).gateway[0].queue_by_tenant:
        return np.int64(request.tenant)
    return np.int64(request.tier) if centre(state).gateway[0].queue_by_tier else 0


@cold_kernel
def drop_request(state, r):
    """Take a request that the gateway holds out of its queue or of the admission FIFO."""
    gateway, request = centre(state).gateway[0], state.requests[r]
    if request.place == HELD:
        remove_queued(state, centre(state).queues[centre(state).queues.shape[0] - 1], r, True)
        gateway.n_held -= 1
    else:
        remove_queued(state, centre(state).queues[queue_of(state, request)], r, False)
        count_queued(state, request, -1)


@cold_kernel
def submit(state, r):
    """Let an arriving request ask for admission, then play a round."""
    gateway = centre(state).gateway[0]
    gateway.awaited = NO_REQUEST
    if state.policies[ADMISSION].address != 0:
        answer = _ask_admission(state, r)
        if state.shared[0].error == ASKED:
            gateway.awaited = r
            return
        _admit(state, r, answer)
    else:
        enqueue(state, r)
    play_round(state)


@cold_kernel
def go_on(state):
    """Go on with what waited for an agent: an arrival's admission, or a round."""
    gateway = centre(state).gateway[0]
    if gateway.awaited != NO_REQUEST:
        submit(state, np.int64(gateway.awaited))
    elif gateway.is_in_round:
        _play_on(state)


@kernel
def _ask_admission(state, r):
    policy = state.policies[ADMISSION]
    set_router(state, r)
    return call_admission(
        policy.address,
        view_of(state),
        Request(state.requests, np.int64(r)),
        state.params[policy.params_begin : policy.params_end],
        state.memory[policy.memory_begin : policy.memory_end],
        state.streams[ADMISSION : ADMISSION + 1],
    )


@kernel
def _admit(state, r, answer):
    """Let the request enter its queue, be rejected, or wait in the FIFO."""
    shared, gateway = state.shared[0], centre(state).gateway[0]
    if answer == ACCEPT:
        enqueue(state, r)
    elif answer == HOLD:
        state.requests[r].place = HELD
        append_held(state, centre(state).queues[centre(state).queues.shape[0] - 1], r)
        gateway.n_held += 1
    else:
        state.requests[r].status, state.requests[r].finish_ps = REJECTED, shared.now_ps
        gateway.n_admission_rejects += 1
        if shared.keeps_tally:
            tally_end(state, r, 1.0)


@cold_kernel
def play_round(state):
    """Ask again about held requests, then dispatch heads of queues until nobody accepts one or a policy holds."""
    shared, gateway = state.shared[0], centre(state).gateway[0]
    gateway.last_round_ps = shared.now_ps
    if shared.n_observing > 0:
        show_completions(state)  # what-if may ask who learns from them
    gateway.n_admission_holds += gateway.n_held
    gateway.n_to_ask = gateway.n_held
    gateway.is_in_round = 1
    _play_on(state)


@cold_kernel
def _play_on(state):
    """Play a round from where it stands; it stands still when an agent is asked."""
    shared, gateway = state.shared[0], centre(state).gateway[0]
    _ask_again(state)
    is_held_back = False
    while gateway.n_queued > 0 and shared.error == OK:
        q = gateway.chosen_queue
        if q == NO_QUEUE:
            q = _choose_queue(state)
        if q < 0:
            is_held_back = q == HELD_BACK
            break
        gateway.chosen_queue = q
        r = np.int64(centre(state).queues[q].head)
        set_router(state, r)
        i = choose_instance(state, r)
        if shared.error == ASKED:
            break
        gateway.chosen_queue = NO_QUEUE
        if i == NO_INSTANCE:
            is_held_back = True
            break
        pop_queue(state, centre(state).queues[q])
        count_queued(state, state.requests[r], -1)
        place(state, i, r)
    if shared.error == ASKED:
        return
    gateway.is_in_round = 0
    if is_held_back and gateway.n_queued + gateway.n_held > 0:
        gateway.n_holds += 1


@kernel
def _ask_again(state):
    """Ask the admission policy about all requests that it held before this round, in order."""
    gateway = centre(state).gateway[0]
    while gateway.n_to_ask > 0 and state.shared[0].error == OK:
        fifo = centre(state).queues[centre(state).queues.shape[0] - 1]
        r = np.int64(fifo.head)
        answer = _ask_admission(state, r)
        if state.shared[0].error == ASKED:
            return
        remove_queued(state, fifo, r, True)
        gateway.n_held -= 1
        gateway.n_to_ask -= 1
        _admit(state, r, answer)


@kernel
def _choose_queue(state):
    """Return the ready queue whose head is dispatched next, NO_QUEUE if none is ready, HELD_BACK if a policy holds."""
    is_asked = state.policies[QUEUEING].address != 0
    chosen = first_ready(state, is_asked)
    if chosen == NO_QUEUE or not is_asked:
        return chosen
    return _ask_queue_policy(state)


@kernel
def first_ready(state, is_any):
    """Return the ready queue whose head comes first in the order, or any ready one; NO_QUEUE if none is."""
    chosen = NO_QUEUE
    for q in range(centre(state).queues.shape[0] - 1):
        queue = centre(state).queues[q]
        if queue.n_waiting == 0:
            continue
        if state.shared[0].is_time_dependent:
            reorder_waiting(state, queue, state.shared[0].now_ps)
        if chosen != NO_QUEUE and (
            is_any
            or not comes_before(
                state, np.int64(queue.head), np.int64(centre(state).queues[chosen].head)
            )
        ):
            continue
        set_router(state, np.int64(queue.head))
        if has_taker(view_of(state), Request(state.requests, np.int64(queue.head))):
            chosen = q
    return chosen


@kernel
def _ask_queue_policy(state):
    shared, policy = state.shared[0], state.policies[QUEUEING]
    shared.router = ANY_ROUTER
    q = call_queue(
        policy.address,
        view_of(state),
        state.params[policy.params_begin : policy.params_end],
        state.memory[policy.memory_begin : policy.memory_end],
        state.streams[QUEUEING : QUEUEING + 1],
    )
    if q == HOLD or shared.error != OK:
        return HELD_BACK
    if not 0 <= q < centre(state).queues.shape[0] - 1 or centre(state).queues[q].n_waiting == 0:
        shared.error, shared.error_instance = BAD_QUEUE, q
        return HELD_BACK
    set_router(state, np.int64(centre(state).queues[q].head))
    if not has_taker(
        view_of(state), Request(state.requests, np.int64(centre(state).queues[q].head))
    ):
        return HELD_BACK
    return q


@cold_kernel
def next_release_ps(state, limit_ps):
    """Return the first instant up to limit_ps at which an iteration ends that may make room; NEVER if there is none.

    Iterations are played up to it, one instance after the other, by the first instant at which each may change. What
    else happens at that instant comes before its refreshes.
    """
    shared = state.shared[0]
    shared.is_early = 1
    release_ps = _play_to_release(state, limit_ps)
    shared.is_early = 0
    return release_ps


@kernel
def _play_to_release(state, limit_ps):
    shared = state.shared[0]
    while shared.error == OK:
        first = 0
        for i in range(1, state.instances.shape[0]):
            if state.instances[i].event_ps < state.instances[first].event_ps:
                first = i
        event_ps = state.instances[first].event_ps
        if event_ps > limit_ps or event_ps == NEVER:
            break
        call_catch_up(shared.catch_up_address, shared.state_pointer, first, event_ps, COUNTS)
        if state.instances[first].released_ps == event_ps:
            return event_ps
    return NEVER


@cold_kernel
def play_release(state):
    """Play the round of an instant at which something may have made room, or the timer is up, if requests wait."""
    shared, gateway = state.shared[0], centre(state).gateway[0]
    is_due = gateway.release_ps == shared.now_ps
    gateway.release_ps = -1  # control ticks may make room once more
    is_due |= shared.now_ps - gateway.last_round_ps >= gateway.hold_timer_ps
    for i in range(state.instances.shape[0]):
        call_catch_up(shared.catch_up_address, shared.state_pointer, i, shared.now_ps, COUNTS)
        is_due |= state.instances[i].released_ps == shared.now_ps
    if is_due and shared.error == OK:
        play_round(state)


@cold_kernel
def has_ready_queue(state):
    """Return whether some instance accepts the head of some queue."""
    for q in range(centre(state).queues.shape[0] - 1):
        if centre(state).queues[q].n_waiting > 0:
            head = Request(state.requests, np.int64(centre(state).queues[q].head))
            if has_taker(view_of(state), head):
                return True
    return False
