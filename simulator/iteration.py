"""The life of an instance: iterations start, end and follow each other until the time asked for.

Source: docs/engine.md sections 2 and 3. One file an engine says what an iteration holds.
"""

import numpy as np

from servegym.simulator.calls import centre
from servegym.simulator.completions import complete
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.outlook_follow import (
    LOST,
    follow_decoder,
    follow_finish,
    follow_prefilled,
    is_followed,
)
from servegym.simulator.sarathi import start_sarathi
from servegym.simulator.seats import (
    blocks_for_stretch,
    count_decoder,
    note_seat_change,
    slot_phase,
)
from servegym.simulator.state import (
    IDLE_REFUSES_HEAD,
    NEVER,
    OK,
    SARATHI,
    STATIC,
    VLLM_V1,
)
from servegym.simulator.static import end_static, start_static
from servegym.simulator.stretch import launch, run_on
from servegym.simulator.tally import tally_first_token
from servegym.simulator.vllm_v0 import start_vllm_v0
from servegym.simulator.vllm_v1 import start_vllm_v1
from servegym.simulator.waiting import reorder_waiting


@kernel
def advance(state, i, until_ps):
    """Process instance i's iteration ends at or before until_ps and its iteration starts before it."""
    instance = state.instances[i]
    while state.shared[0].error == OK:
        if instance.stretch_end_ps != NEVER:
            if instance.stretch_end_ps > until_ps:
                break
            end_stretch(state, i, instance)
        else:
            if instance.wake_ps >= until_ps:
                break
            start_iteration(state, i, instance, instance.wake_ps)


@kernel
def start_iteration(state, i, instance, now_ps):
    """Form and start the next iteration (mutates slots, blocks, queue and the requests' progress)."""
    engine = state.engines[instance.engine]
    if state.shared[0].is_time_dependent and instance.n_waiting > 0:
        reorder_waiting(state, instance, now_ps)
    if engine.kind == STATIC:
        start_static(state, i, instance, engine, now_ps)
        return
    preemptions = instance.n_preemptions
    if engine.kind == VLLM_V1:
        n_decodes, kv_tokens, is_ample = start_vllm_v1(state, i, instance, engine, now_ps)
    elif engine.kind == SARATHI:
        n_decodes, kv_tokens, is_ample = start_sarathi(state, i, instance, engine, now_ps)
    else:
        n_decodes, kv_tokens, is_ample = start_vllm_v0(state, i, instance, engine, now_ps)
    if state.shared[0].error != OK:
        return
    n_prefilling = instance.n_running - instance.n_decoding
    if n_decodes == 0 and (n_prefilling == 0 or (n_prefilling == 1 and instance.tail_chunk == 0)):
        # Nothing scheduled takes no time: wake_ps stays, and the next iteration is formed at once.
        if instance.n_preemptions == preemptions:
            _refuse_head(state, i, instance)
        return
    launch(state, i, instance, engine, now_ps, n_decodes, kv_tokens)
    if is_ample and n_prefilling == 0 and state.shared[0].error == OK:
        run_on(state, i, instance, engine)


@cold_kernel
def _refuse_head(state, i, instance):
    """Stop the run, or sleep until a move gives back the seats or blocks that keep the head from being admitted."""
    if instance.n_parked + instance.n_incoming > 0:
        instance.wake_ps = instance.event_ps = NEVER
        return
    state.shared[0].error = IDLE_REFUSES_HEAD
    state.shared[0].error_instance = i


@kernel
def end_stretch(state, i, instance):
    """Apply the stretch in flight: tokens streamed, completions, decoders made of finished prefills."""
    now_ps = instance.stretch_end_ps
    if state.engines[instance.engine].kind == STATIC:
        end_static(state, i, instance, now_ps)
    else:
        if instance.is_decoding:
            _end_decodes(state, i, instance)
        _collect_slots(state, i, instance, now_ps)
    if instance.has_admitted:
        instance.has_admitted, instance.released_ps = 0, now_ps
    instance.n_iterations += instance.stretch
    instance.busy_ps += now_ps - instance.iteration_start_ps
    instance.iteration_start_ps = now_ps
    instance.stretch_end_ps = NEVER
    has_work = instance.n_running + instance.n_waiting > 0
    instance.wake_ps = now_ps if has_work else NEVER
    instance.event_ps = now_ps + 1 if has_work else NEVER


@kernel
def _end_decodes(state, i, instance):
    if instance.stretch > 1:
        instance.free_blocks -= blocks_for_stretch(state, i, instance, 1, instance.stretch - 1)
        instance.least_free_blocks = min(instance.least_free_blocks, instance.free_blocks)
    instance.iteration += instance.stretch
    instance.kv_tokens += instance.n_decoding * instance.stretch
    if instance.n_decoding > 0:
        instance.preemptions_since = 0


@kernel
def _collect_slots(state, i, instance, now_ps):
    """Keep the decoders that go on, then finished prefills as decoders, then the unfinished prefill."""
    base, end = instance.first_slot, instance.first_slot + instance.n_running
    first_prefill = kept = base + instance.n_decoding
    n_before, follows = instance.n_decoding, is_followed(state, i)
    if instance.is_decoding and instance.next_finish <= instance.iteration:
        kept = _finish_decoders(state, i, instance, now_ps, follows)
    for p in range(first_prefill, end):
        r = np.int64(state.slots[p].request)
        request = state.requests[r]
        if p == end - 1:
            request.computed += instance.tail_chunk
        else:
            request.computed = request.prompt_tokens + request.generated
        if request.computed < request.prompt_tokens + request.generated:
            state.slots[kept].request = r
            kept += 1
            break
        is_finished = _stream_after_prefill(state, i, instance, r, now_ps)
        if follows:
            follow_prefilled(centre(state).outlooks[i], request)
        if is_finished:
            continue
        slot = state.slots[kept]
        slot.request = r
        slot.finish_iteration = instance.iteration + request.output_tokens - request.generated
        instance.next_finish = min(instance.next_finish, slot.finish_iteration)
        count_decoder(state, i, instance, slot, 1)
        instance.n_decoding += 1
        kept += 1
        if follows:
            follow_decoder(centre(state).outlooks[i], request, instance.iteration)
    if kept != end or instance.n_decoding != n_before:  # who finished left a gap
        note_seat_change(instance)
        if follows and centre(state).outlooks[i].changes != LOST:
            centre(state).outlooks[i].changes = instance.seat_changes
    instance.n_running = kept - base


@kernel
def _stream_after_prefill(state, i, instance, r, now_ps):
    """Stream the token that ends a prefill; return whether it was the request's last."""
    request = state.requests[r]
    request.generated += 1
    instance.preemptions_since = 0
    if request.generated == 1:
        request.first_token_ps = now_ps
        if state.shared[0].keeps_tally:
            tally_first_token(state, r, 1.0)
    if request.generated < request.output_tokens:
        return False
    _finish(state, i, instance, r, now_ps)
    return True


@kernel
def _finish_decoders(state, i, instance, now_ps, follows):
    """Finish the decoders whose last token this was; return the end of the kept ones in `slots`."""
    size = state.shared[0].block_size
    least, kept = NEVER, instance.first_slot
    for p in range(instance.first_slot, instance.first_slot + instance.n_decoding):
        slot = state.slots[np.uint64(p)]  # unsigned: no index from the end to be told apart
        if slot.finish_iteration > instance.iteration:
            least = min(least, slot.finish_iteration)
            if kept < p:
                place = state.slots[np.uint64(kept)]
                place.finish_iteration, place.request = slot.finish_iteration, slot.request
            kept += 1
            continue
        request = state.requests[slot.request]
        if follows:
            follow_finish(centre(state).outlooks[i], request, slot.finish_iteration)
        state.phases[i * size + slot_phase(state, slot)] -= 1
        instance.kv_tokens -= request.prompt_tokens + request.output_tokens
        _finish(state, i, instance, np.int64(slot.request), now_ps)
    instance.next_finish = least
    instance.n_decoding = kept - instance.first_slot
    return kept


@kernel
def _finish(state, i, instance, r, now_ps):
    instance.free_blocks += state.requests[r].need_blocks
    complete(state, i, instance, r, now_ps)
