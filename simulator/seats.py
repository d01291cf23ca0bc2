"""Who runs on an instance and which KV blocks they hold.

`slots` lists the running requests in the order of their admission: first the decoders, then those that prefill. Every
decoder computes one token an iteration, so its block boundary depends on (computed - iteration) mod block_size alone:
`phases` counts decoders by that, and the blocks of the next k iterations are a sum over it.
"""

from servegym.simulator.block_arithmetic import blocks_for, in_block, whole_blocks
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.state import NEVER


@kernel
def note_seat_change(instance):
    """Note that who runs, or who of them decodes, is another than before (mutates seat_changes, seats_iteration)."""
    instance.seat_changes += 1
    instance.seats_iteration = instance.iteration


@kernel
def slot_phase(state, slot):
    """Return a decoder's place in its instance's part of `phases`."""
    request = state.requests[slot.request]
    last = request.prompt_tokens + request.output_tokens - 1
    return in_block(state.shared[0], last - slot.finish_iteration)


@kernel
def computed_by(state, instance, slot):
    """Return the tokens that a decoder has in KV at the instance's current iteration."""
    request = state.requests[slot.request]
    last = request.prompt_tokens + request.output_tokens - 1
    return last - (slot.finish_iteration - instance.iteration)


@kernel
def count_decoder(state, i, instance, slot, sign):
    """Add (+1) or remove (-1) a decoder's share of `phases` and kv_tokens."""
    base = i * state.shared[0].block_size
    state.phases[base + slot_phase(state, slot)] += sign
    instance.kv_tokens += sign * (computed_by(state, instance, slot) + 1)


@kernel
def blocks_for_iteration(state, i, instance):
    """Return the blocks that the decoders take in the iteration that starts now."""
    size = state.shared[0].block_size
    return state.phases[i * size + in_block(state.shared[0], -instance.iteration)]


@kernel
def blocks_for_stretch(state, i, instance, first, k):
    """Return the blocks that the decoders take in k iterations, beginning `first` iterations from now."""
    size = state.shared[0].block_size
    cycles = whole_blocks(state.shared[0], k)
    total = cycles * instance.n_decoding
    phase = in_block(state.shared[0], -(instance.iteration + first))
    for _ in range(k - cycles * size):
        total += state.phases[i * size + phase]
        phase = phase - 1 if phase > 0 else size - 1
    return total


@kernel
def iterations_within(state, i, instance, first, blocks):
    """Return how many iterations, beginning `first` from now, take at most `blocks` blocks (n_decoding > 0)."""
    size = state.shared[0].block_size
    cycles = blocks // instance.n_decoding
    k, left = cycles * size, blocks - cycles * instance.n_decoding
    phase = in_block(state.shared[0], -(instance.iteration + first))
    while True:
        need = state.phases[i * size + phase]
        if need > left:
            return k
        left -= need
        k += 1
        phase = phase - 1 if phase > 0 else size - 1


@kernel
def remove_slot(state, instance, position):
    """Close the gap at `position`, keeping the order (mutates slots, n_running, n_decoding)."""
    base = instance.first_slot
    for p in range(base + position, base + instance.n_running - 1):
        state.slots[p].finish_iteration = state.slots[p + 1].finish_iteration
        state.slots[p].request = state.slots[p + 1].request
    instance.n_running -= 1
    note_seat_change(instance)
    if position < instance.n_decoding:
        instance.n_decoding -= 1


@cold_kernel
def find_seat(state, instance, r):
    """Return the position of request r among the running ones, -1 if it does not run here."""
    for position in range(instance.n_running):
        if state.slots[instance.first_slot + position].request == r:
            return position
    return -1


@kernel
def find_next_finish(state, instance):
    """Set next_finish to the least finish_iteration among the decoders."""
    least, base = NEVER, instance.first_slot
    for p in range(base, base + instance.n_decoding):
        least = min(least, state.slots[p].finish_iteration)
    instance.next_finish = least


@kernel
def blocks_of_decoder(state, instance, position):
    """Return the KV blocks of the decoder at `position`, that of the iteration in flight included."""
    computed = computed_by(state, instance, state.slots[instance.first_slot + position])
    is_in_flight = instance.stretch_end_ps != NEVER and instance.is_decoding == 1
    return blocks_for(state.shared[0], computed + (1 if is_in_flight else 0))


@cold_kernel
def insert_decoder(state, i, instance, r):
    """Seat request r, whose KV is here, behind the decoders and before those that prefill (no iteration in flight)."""
    base, request = instance.first_slot, state.requests[r]
    for p in range(base + instance.n_running, base + instance.n_decoding, -1):
        state.slots[p].request = state.slots[p - 1].request
        state.slots[p].finish_iteration = state.slots[p - 1].finish_iteration
    slot = state.slots[base + instance.n_decoding]
    slot.request = r
    slot.finish_iteration = instance.iteration + request.output_tokens - request.generated
    if instance.n_decoding == 0:
        instance.next_finish = NEVER
    instance.next_finish = min(instance.next_finish, slot.finish_iteration)
    count_decoder(state, i, instance, slot, 1)
    instance.n_decoding += 1
    instance.n_running += 1
    note_seat_change(instance)
