"""Preemption: a running request gives back its blocks and is computed again later; what it streamed stays.

Source: vLLM 0.19 v1 scheduler (recompute preemption); Vidur's restart() for the prefill-first engines.
"""

import numpy as np

from servegym.simulator.block_arithmetic import blocks_for
from servegym.simulator.kernel import cold_kernel
from servegym.simulator.seats import (
    computed_by,
    count_decoder,
    find_next_finish,
    remove_slot,
)
from servegym.simulator.state import FCFS, NO_PROGRESS, VLLM_V1
from servegym.simulator.waiting import comes_before, evaluate_key, return_waiting


@cold_kernel
def choose_victim(state, instance, first):
    """Return the position of the victim among the running requests at positions >= first."""
    last = instance.n_running - 1
    if state.shared[0].order == FCFS:
        return last
    base, victim = instance.first_slot, first
    for p in range(first + 1, last + 1):
        if comes_before(
            state,
            np.int64(state.slots[base + victim].request),
            np.int64(state.slots[base + p].request),
        ):
            victim = p
    return victim


@cold_kernel
def evaluate_running_keys(state, instance, now_ps):
    """Evaluate the keys of running requests anew (time-dependent orders, before victims are chosen)."""
    for p in range(instance.first_slot, instance.first_slot + instance.n_running):
        evaluate_key(state, np.int64(state.slots[p].request), now_ps)


@cold_kernel
def unseat(state, i, instance, position, is_scheduled):
    """Take the running request at `position` out of its seat, give back its blocks and return it.

    is_scheduled: it has taken its block of this iteration already. Mutates slots, phases, free_blocks and what the
    request's record says of its progress; `computed` is what it had.
    """
    slot = state.slots[instance.first_slot + position]
    r = np.int64(slot.request)
    request = state.requests[r]
    if position < instance.n_decoding:
        request.computed = computed_by(state, instance, slot)
        request.generated = request.output_tokens - (slot.finish_iteration - instance.iteration)
        held = blocks_for(state.shared[0], request.computed + is_scheduled)
        was_next = slot.finish_iteration == instance.next_finish
        count_decoder(state, i, instance, slot, -1)
        remove_slot(state, instance, position)
        if was_next:
            find_next_finish(state, instance)
    else:
        is_chunked = state.engines[instance.engine].kind == VLLM_V1
        known = request.prompt_tokens + request.generated
        held = blocks_for(state.shared[0], request.computed if is_chunked else known)
        remove_slot(state, instance, position)
    instance.free_blocks += held
    return r


@cold_kernel
def count_recomputed(request):
    """Count what the request had in KV as to be computed again; it has nothing any more."""
    recomputed = np.int64(request.recomputed_tokens) + np.int64(request.computed)
    request.recomputed_tokens = min(recomputed, 2**31 - 1)
    request.computed = 0


@cold_kernel
def preempt(state, i, instance, position, is_scheduled):
    """Evict the running request at `position`; is_scheduled: it has taken its block of this iteration already.

    Mutates slots, phases, free_blocks, the queue and the request. Sets the error NO_PROGRESS when too many evictions
    in a row brought no token.
    """
    r = unseat(state, i, instance, position, is_scheduled)
    count_recomputed(state.requests[r])
    state.requests[r].preemptions += 1
    instance.n_preemptions += 1
    return_waiting(state, instance, r)
    if instance.n_parked + instance.n_incoming > 0:
        return  # what a move keeps will be free again: no standstill
    instance.preemptions_since += 1
    if instance.preemptions_since > instance.n_running + instance.n_waiting + 1:
        state.shared[0].error = NO_PROGRESS
        state.shared[0].error_instance = i
