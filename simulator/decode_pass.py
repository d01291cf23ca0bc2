"""One decode iteration when KV blocks may run out: request by request, with preemption.

The usual case, enough blocks for everybody, costs O(1) and stands in the engines' own files.
Source: docs/engine.md sections 4 (step 1) and 5 (step 1).
"""

from servegym.simulator.block_arithmetic import in_block
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.preemption import choose_victim, evaluate_running_keys, preempt
from servegym.simulator.seats import (
    computed_by,
    count_decoder,
    find_next_finish,
    note_seat_change,
)
from servegym.simulator.state import OK, VLLM_V1


@kernel
def needs_block(state, instance, position):
    """Return 1 if the decoder at `position` crosses a block boundary in this iteration, else 0."""
    slot = state.slots[instance.first_slot + position]
    return 1 if in_block(state.shared[0], computed_by(state, instance, slot)) == 0 else 0


@cold_kernel
def schedule_decoders(state, i, instance, engine, now_ps):
    """Let the decoders take their blocks in order, preempting where none is free.

    Returns (scheduled decoders, index of the position at which the pass stopped because a vLLM v1 request evicted
    itself, else -1). Vidur's engines want one free block even for a decode that takes none.
    """
    if state.shared[0].is_time_dependent:
        evaluate_running_keys(state, instance, now_ps)
    is_v1 = engine.kind == VLLM_V1
    position = 0
    while position < instance.n_decoding:
        need = needs_block(state, instance, position)
        wanted = need if is_v1 else 1
        evicted_itself = False
        while instance.free_blocks < wanted and state.shared[0].error == OK:
            victim = choose_victim(state, instance, 0 if is_v1 else position)
            preempt(state, i, instance, victim, 1 if victim < position else 0)
            if victim < position:
                position -= 1
            elif victim == position:
                evicted_itself = True
                break
        if state.shared[0].error != OK:
            return position, -1
        if not evicted_itself:
            instance.free_blocks -= need
            position += 1
        elif is_v1:
            return position, position
    return position, -1


@cold_kernel
def skip_decoders(state, i, instance, first):
    """Let the decoders from position `first` on sit out this iteration; return the KV tokens the others read."""
    kv_tokens = instance.kv_tokens
    for p in range(first, instance.n_decoding):
        slot = state.slots[instance.first_slot + p]
        count_decoder(state, i, instance, slot, -1)
        kv_tokens -= computed_by(state, instance, slot) + 1
        slot.finish_iteration += 1
        count_decoder(state, i, instance, slot, 1)
    if first < instance.n_decoding:
        find_next_finish(state, instance)
        note_seat_change(instance)
    return kv_tokens
