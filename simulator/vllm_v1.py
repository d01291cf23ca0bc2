"""vllm-v1: no phases; running requests first, chunked prefill inside one token budget, recompute preemption.

Source: vLLM 0.19 v1 scheduler; docs/engine.md section 4. Since budget >= seats, every running request but the last
has exactly one uncomputed token: the decoders stand first in `slots`, at most one unfinished prefill stands last.
"""

from servegym.simulator.admission import has_seat, pass_over_head, return_passed_over, seat_head
from servegym.simulator.block_arithmetic import blocks_for
from servegym.simulator.decode_pass import schedule_decoders, skip_decoders
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.preemption import choose_victim, preempt
from servegym.simulator.seats import blocks_for_iteration
from servegym.simulator.state import NO_REQUEST, OK


@kernel
def start_vllm_v1(state, i, instance, engine, now_ps):
    """Schedule one iteration; return (decodes, KV tokens they read, whether the decoders may run on undisturbed)."""
    need, chunk, tail_blocks = blocks_for_iteration(state, i, instance), 0, 0
    if instance.n_running > instance.n_decoding:
        chunk, tail_blocks = _tail_need(state, instance, engine, instance.n_decoding)
    instance.tail_chunk = chunk
    if need + tail_blocks <= instance.free_blocks:
        instance.free_blocks -= need + tail_blocks
        n_decodes, kv_tokens = instance.n_decoding, instance.kv_tokens
        budget = engine.max_num_batched_tokens - n_decodes - chunk
        _admit(state, i, instance, engine, budget, now_ps)
        return n_decodes, kv_tokens, True
    # Blocks lack, so somebody is preempted, and nobody is admitted in this iteration.
    n_decodes, kv_tokens = _schedule_running(state, i, instance, engine, now_ps)
    return n_decodes, kv_tokens, False


@kernel
def _tail_need(state, instance, engine, n_scheduled):
    """Return (tokens, blocks) that the unfinished prefill at the end of `slots` gets in this iteration."""
    tail = state.requests[state.slots[instance.first_slot + instance.n_running - 1].request]
    uncomputed = tail.prompt_tokens + tail.generated - tail.computed
    chunk = min(uncomputed, engine.max_num_batched_tokens - n_scheduled)
    return chunk, blocks_for(state.shared[0], tail.computed + chunk) - blocks_for(
        state.shared[0], tail.computed
    )


@cold_kernel
def _schedule_running(state, i, instance, engine, now_ps):
    """Schedule the running requests one by one when blocks may run out; return (decodes, KV tokens they read)."""
    n_scheduled, stopped_at = schedule_decoders(state, i, instance, engine, now_ps)
    instance.tail_chunk = 0
    if stopped_at == 0:
        return 0, 0
    if stopped_at > 0:
        return n_scheduled, skip_decoders(state, i, instance, stopped_at)
    if instance.n_running > instance.n_decoding and state.shared[0].error == OK:
        _schedule_tail(state, i, instance, engine, now_ps)
    return instance.n_decoding, instance.kv_tokens


@cold_kernel
def _schedule_tail(state, i, instance, engine, now_ps):
    """Give the unfinished prefill its chunk, preempting where blocks lack."""
    chunk, blocks = _tail_need(state, instance, engine, instance.n_decoding)
    while instance.free_blocks < blocks:
        victim, tail = choose_victim(state, instance, 0), instance.n_running - 1
        preempt(state, i, instance, victim, 1 if victim < tail else 0)
        if victim == tail or state.shared[0].error != OK:
            return
    instance.free_blocks -= blocks
    instance.tail_chunk = chunk


@kernel
def _admit(state, i, instance, engine, budget, now_ps):
    """Admit waiting requests in order while budget, seats and blocks allow."""
    passed_over = NO_REQUEST
    while budget > 0 and instance.n_waiting > 0 and has_seat(instance, engine):
        head = state.requests[instance.head]
        known = head.prompt_tokens + head.generated
        chunk = min(known, budget)
        asked = blocks_for(state.shared[0], known if engine.reserve_full_prompt else chunk)
        if instance.free_blocks - asked < engine.watermark_blocks:
            instance.n_blocked_heads += 1
            if not engine.bypass_blocked:
                break
            passed_over = pass_over_head(state, instance, passed_over)
            continue
        seat_head(state, i, instance, blocks_for(state.shared[0], chunk), now_ps)
        instance.tail_chunk = chunk
        budget -= chunk
    if passed_over != NO_REQUEST:
        return_passed_over(state, instance, passed_over)
