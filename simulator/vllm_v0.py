"""vllm-v0: prefill first; an iteration with a prefill runs no decodes, and its prompts are padded to the longest.

Source: Vidur 7d47513, vllm replica scheduler; docs/engine.md section 6. The eviction of less urgent running requests
under `priority` follows vLLM v0's priority scheduling.
"""

from servegym.simulator.admission import has_seat, pass_over_head, return_passed_over, seat_head
from servegym.simulator.block_arithmetic import known_blocks
from servegym.simulator.decode_pass import schedule_decoders
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.preemption import choose_victim, preempt
from servegym.simulator.seats import blocks_for_iteration
from servegym.simulator.state import NO_REQUEST, OK, PRIORITY


@kernel
def start_vllm_v0(state, i, instance, engine, now_ps):
    """Schedule one iteration; return (decodes, KV tokens they read, whether the decoders may run on undisturbed)."""
    preemptions = instance.n_preemptions
    if state.shared[0].order == PRIORITY:
        _evict_less_urgent(state, i, instance, engine)
    if state.shared[0].error != OK:
        return 0, 0, False
    _admit(state, i, instance, engine, now_ps)
    if instance.n_running > instance.n_decoding:
        return 0, 0, False
    need = blocks_for_iteration(state, i, instance)
    if need < instance.free_blocks:
        instance.free_blocks -= need
    else:
        schedule_decoders(state, i, instance, engine, now_ps)
    is_ample = instance.n_preemptions == preemptions
    return instance.n_decoding, instance.kv_tokens, is_ample


@cold_kernel
def _evict_less_urgent(state, i, instance, engine):
    """Evict running requests of a larger tier than the blocked waiting head, until it is admissible."""
    if instance.n_waiting == 0:
        return
    head = state.requests[instance.head]
    tier, blocks = head.tier, known_blocks(state, head)
    while instance.n_running > 0 and state.shared[0].error == OK:
        has_blocks = instance.free_blocks - blocks >= engine.watermark_blocks
        if has_blocks and has_seat(instance, engine):
            return
        victim = choose_victim(state, instance, 0)
        if state.requests[state.slots[instance.first_slot + victim].request].tier <= tier:
            return
        preempt(state, i, instance, victim, 0)


@kernel
def _admit(state, i, instance, engine, now_ps):
    """Admit waiting requests in order while seats, blocks and the padded budget allow."""
    passed_over, n_prompts, longest = NO_REQUEST, 0, 0
    while instance.n_waiting > 0 and has_seat(instance, engine):
        head = state.requests[instance.head]
        known = head.prompt_tokens + head.generated
        blocks = known_blocks(state, head)
        lacks_blocks = instance.free_blocks - blocks < engine.watermark_blocks
        padded = (n_prompts + 1) * max(longest, known)
        if lacks_blocks or padded > engine.max_num_batched_tokens:
            instance.n_blocked_heads += 1 if lacks_blocks else 0
            if not engine.bypass_blocked:
                break
            passed_over = pass_over_head(state, instance, passed_over)
            continue
        seat_head(state, i, instance, blocks, now_ps)
        instance.tail_chunk = known
        n_prompts, longest = n_prompts + 1, max(longest, known)
    if passed_over != NO_REQUEST:
        return_passed_over(state, instance, passed_over)
