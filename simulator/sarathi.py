"""sarathi: decodes first, then prefill in chunks of what the budget leaves; a prompt's blocks are taken at admission.

Source: Vidur 7d47513, sarathi replica scheduler; docs/engine.md section 5.
"""

from servegym.simulator.admission import has_seat, pass_over_head, return_passed_over, seat_head
from servegym.simulator.block_arithmetic import known_blocks
from servegym.simulator.decode_pass import schedule_decoders
from servegym.simulator.kernel import kernel
from servegym.simulator.seats import blocks_for_iteration
from servegym.simulator.state import NO_REQUEST, OK


@kernel
def start_sarathi(state, i, instance, engine, now_ps):
    """Schedule one iteration; return (decodes, KV tokens they read, whether the decoders may run on undisturbed)."""
    need = blocks_for_iteration(state, i, instance)
    is_ample = need < instance.free_blocks or instance.n_decoding == 0
    if is_ample:
        instance.free_blocks -= need
    else:
        schedule_decoders(state, i, instance, engine, now_ps)
    n_decodes, kv_tokens = instance.n_decoding, instance.kv_tokens
    if state.shared[0].error != OK:
        return n_decodes, kv_tokens, False
    budget = engine.max_num_batched_tokens - n_decodes
    instance.tail_chunk = 0
    if instance.n_running > instance.n_decoding:
        tail = state.requests[state.slots[instance.first_slot + instance.n_running - 1].request]
        instance.tail_chunk = min(tail.prompt_tokens + tail.generated - tail.computed, budget)
        budget -= instance.tail_chunk
    _admit(state, i, instance, engine, budget, now_ps)
    return n_decodes, kv_tokens, is_ample


@kernel
def _admit(state, i, instance, engine, budget, now_ps):
    """Admit waiting requests in order while budget, seats and blocks for their whole prompt allow."""
    passed_over = NO_REQUEST
    while budget > 0 and instance.n_waiting > 0 and has_seat(instance, engine):
        head = state.requests[instance.head]
        blocks = known_blocks(state, head)
        if instance.free_blocks - blocks < engine.watermark_blocks:
            instance.n_blocked_heads += 1
            if not engine.bypass_blocked:
                break
            passed_over = pass_over_head(state, instance, passed_over)
            continue
        instance.tail_chunk = min(head.prompt_tokens + head.generated, budget)
        seat_head(state, i, instance, blocks, now_ps)
        budget -= instance.tail_chunk
    if passed_over != NO_REQUEST:
        return_passed_over(state, instance, passed_over)
