"""An arrival: predict its length, reject what fits nowhere, then dispatch it, through the gateway if need be.

Source: docs/engine.md sections 10 and 11. Policies return answers, which are checked here and in gateway.py; they
cannot raise.
"""

import numpy as np

from servegym.simulator.calls import call_predict, centre
from servegym.simulator.clients import set_deadline
from servegym.simulator.completions import show_completions
from servegym.simulator.gateway import (
    choose_instance,
    enqueue,
    set_router,
    submit,
)
from servegym.simulator.iteration_time import round_half_even
from servegym.simulator.kernel import kernel
from servegym.simulator.placement import place
from servegym.simulator.state import (
    ASKED,
    ESTIMATION,
    NO_INSTANCE,
    NO_REQUEST,
    OK,
    REJECTED,
    Request,
)
from servegym.simulator.tally import tally_arrival, tally_end
from servegym.simulator.views import fits_engine

LONGEST_PREDICTION = 2.0**30


@kernel
def arrive(state, r):
    """Decide and carry out everything about request r's arrival, through the gateway."""
    if receive(state, r):
        submit(state, r)


@kernel
def arrive_directly(state, r, is_awaited):
    """Do the same where nobody precedes the request and no policy stands before dispatch: a round of one.

    is_awaited: an agent was asked about it and has answered; else it is the next of the trace.
    """
    shared, gateway = state.shared[0], centre(state).gateway[0]
    if not is_awaited:
        shared.next_arrival = r + 1
        if not receive(state, r):
            return
    gateway.awaited = NO_REQUEST
    i = choose_instance(state, r)
    if i != NO_INSTANCE:
        place(state, i, r)
    elif shared.error == ASKED:
        gateway.awaited = r
    elif shared.error == OK:
        enqueue(state, r)
        gateway.last_round_ps = gateway.last_event_ps = state.shared[0].now_ps
        gateway.n_holds += 1


@kernel
def receive(state, r):
    """Predict an arriving request's length; return whether it fits anywhere: if not, it is rejected."""
    shared, request = state.shared[0], state.requests[r]
    shared.now_ps = request.arrival_ps
    if shared.n_observing > 0:
        show_completions(state)
    set_router(state, r)
    predict(state, r)
    if shared.keeps_tally:
        tally_arrival(state, r)
    if not fits_fleet(state, r):
        request.status, request.finish_ps = REJECTED, shared.now_ps
        if shared.keeps_tally:
            tally_end(state, r, 1.0)
        return False
    if shared.has_timeouts:
        set_deadline(state, r, shared.now_ps)
    return True


@kernel
def predict(state, r):
    """Store the estimator's prediction, whole and >= 1; others count as bad."""
    policy = state.policies[ESTIMATION]
    tokens = call_predict(
        policy.address,
        Request(state.requests, np.int64(r)),
        state.params[policy.params_begin : policy.params_end],
        state.memory[policy.memory_begin : policy.memory_end],
        state.streams[ESTIMATION : ESTIMATION + 1],
    )
    if not 1.0 <= tokens <= LONGEST_PREDICTION:
        state.shared[0].n_bad_predictions += 1
        tokens = LONGEST_PREDICTION if tokens > LONGEST_PREDICTION else 1.0
    state.requests[r].predicted_tokens = round_half_even(tokens)


@kernel
def fits_fleet(state, r):
    """Return whether some instance could ever hold the request."""
    for e in range(state.engines.shape[0]):
        if fits_engine(Request(state.requests, np.int64(r)), state.engines[e]):
            return True
    return False
