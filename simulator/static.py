"""static: micro-batches that form, prefill once, decode to the last token and finish together.

Source: DriftSched's worker (one batch of 32, closing 10 ms after its last request); docs/engine.md section 7.
"""

import numpy as np

from servegym.simulator.admission import seat_head
from servegym.simulator.completions import complete
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.seats import note_seat_change
from servegym.simulator.state import IDLE_REFUSES_HEAD, LATEST_PS, NEVER, OK
from servegym.simulator.stretch import launch, run_on
from servegym.simulator.tally import tally_first_token


@cold_kernel
def start_static(state, i, instance, engine, now_ps):
    """Take waiting requests into the forming batch, or start the closed batch's next iteration."""
    if not instance.is_batch_closed:
        _take(state, i, instance, engine, now_ps)
        if instance.n_running == 0:
            state.shared[0].error = IDLE_REFUSES_HEAD
            state.shared[0].error_instance = i
            return
        closes_ps = min(instance.last_taken_ps, LATEST_PS - engine.batch_wait_ps)
        closes_ps += engine.batch_wait_ps
        is_full = instance.n_running == engine.batch_size or instance.n_waiting > 0
        if not is_full and now_ps < closes_ps:
            instance.wake_ps, instance.event_ps = closes_ps, closes_ps + 1
            return
        _close(state, instance, now_ps)
    launch(state, i, instance, engine, now_ps, instance.n_decoding, instance.kv_tokens)
    if instance.n_decoding > 0 and state.shared[0].error == OK:
        run_on(state, i, instance, engine)


@kernel
def _take(state, i, instance, engine, now_ps):
    while instance.n_waiting > 0 and instance.n_running < engine.batch_size:
        head = state.requests[instance.head]
        need = head.need_blocks
        if instance.free_blocks < need:
            instance.n_blocked_heads += 1
            break
        admitted_ps = head.admitted_ps
        r = seat_head(state, i, instance, need, now_ps)
        state.requests[r].admitted_ps = admitted_ps  # not before the batch closes
        instance.last_taken_ps = now_ps


@kernel
def _close(state, instance, now_ps):
    """Start the batch: everyone's first iteration is now, unless a crash ended an earlier one."""
    instance.is_batch_closed = 1
    base = instance.first_slot
    for p in range(base, base + instance.n_running):
        request = state.requests[state.slots[p].request]
        if request.admitted_ps < 0:
            request.admitted_ps = now_ps
    instance.tail_chunk = state.requests[
        state.slots[base + instance.n_running - 1].request
    ].prompt_tokens


@cold_kernel
def end_static(state, i, instance, now_ps):
    """End the prefill iteration or a stretch of decodes; at the last token of all, end the batch."""
    if instance.is_decoding:
        instance.iteration += instance.stretch
        instance.kv_tokens += instance.n_decoding * instance.stretch
    else:
        _stream_first_tokens(state, instance, now_ps)
    if instance.next_finish <= instance.iteration:
        _retire(state, instance)
    if instance.n_decoding == 0:
        _finish_batch(state, i, instance, now_ps)


@kernel
def _stream_first_tokens(state, instance, now_ps):
    instance.next_finish, instance.kv_tokens = NEVER, 0
    base = instance.first_slot
    for p in range(base, base + instance.n_running):
        request = state.requests[state.slots[p].request]
        request.computed = request.prompt_tokens
        if request.generated == 0:
            request.generated, request.first_token_ps = 1, now_ps
            if state.shared[0].keeps_tally:
                tally_first_token(state, state.slots[p].request, 1.0)
        # One that had streamed all before a crash sits behind those with tokens left, whatever its length.
        left = 0 if request.generated == request.output_tokens else request.output_tokens - 1
        state.slots[p].finish_iteration = instance.iteration + left
        instance.next_finish = min(instance.next_finish, state.slots[p].finish_iteration)
        instance.kv_tokens += request.prompt_tokens + request.output_tokens - left
    instance.n_decoding = instance.n_running
    note_seat_change(instance)


@kernel
def _retire(state, instance):
    """Move those without tokens left behind the decoders; they stay seated until the batch ends."""
    least, p, end = NEVER, instance.first_slot, instance.first_slot + instance.n_decoding
    while p < end:
        slot = state.slots[p]
        if slot.finish_iteration > instance.iteration:
            least = min(least, slot.finish_iteration)
            p += 1
            continue
        end -= 1
        request = state.requests[slot.request]
        instance.kv_tokens -= request.prompt_tokens + request.output_tokens
        other = state.slots[end]
        slot.request, other.request = other.request, slot.request
        slot.finish_iteration, other.finish_iteration = (
            other.finish_iteration,
            slot.finish_iteration,
        )
    instance.n_decoding = end - instance.first_slot
    instance.next_finish = least
    note_seat_change(instance)


@kernel
def _finish_batch(state, i, instance, now_ps):
    base = instance.first_slot
    for p in range(base, base + instance.n_running):
        complete(state, i, instance, np.int64(state.slots[p].request), now_ps)
    instance.n_running = 0
    note_seat_change(instance)
    instance.is_batch_closed = 0
    instance.free_blocks = state.engines[instance.engine].kv_blocks
