"""A stretch: one iteration, or a run of decode iterations of a fixed batch taken at once.

Iteration j of a stretch lasts first + j*step picoseconds (step = decoders * kv_ps: every decoder's context grows by
one token). A stretch ends where anything could change: a completion, want of blocks, an arrival that may be
admitted. Looking inside splits it and changes no result, since time is a sum of integers.
Source: docs/engine.md section 3.
"""

from servegym.simulator.admission import has_seat
from servegym.simulator.block_arithmetic import whole_blocks
from servegym.simulator.calls import call_catch_up
from servegym.simulator.iteration_time import iteration_ps, iterations_until, stretch_ps
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.seats import blocks_for_stretch, iterations_within
from servegym.simulator.state import (
    BLOCKS,
    LATEST_PS,
    NEVER,
    PRIORITY,
    STATIC,
    TIME_OVERFLOW,
    VLLM_V0,
    VLLM_V1,
)


@kernel
def launch(state, i, instance, engine, now_ps, n_decodes, kv_tokens):
    """Start one iteration of n_decodes decoders and all prefilling slots."""
    prefill_tokens, twice_attention = 0, 0
    last = instance.first_slot + instance.n_running - 1
    first = instance.first_slot + instance.n_decoding
    if engine.kind == STATIC and n_decodes > 0:
        first = last + 1  # behind a static batch's decoders sit those that are done
    for p in range(first, last + 1):
        request = state.requests[state.slots[p].request]
        uncomputed = request.prompt_tokens - request.computed
        if engine.kind != STATIC:  # its batches compute streamed tokens again one by one
            uncomputed += request.generated
        chunk = instance.tail_chunk if p == last else uncomputed
        if engine.kind == VLLM_V1 and request.generated >= 1 and uncomputed == 1 and chunk == 1:
            n_decodes += 1
            kv_tokens += request.computed + 1
        else:
            prefill_tokens += chunk
            # int: interpreted kernels would multiply in 32 bits
            twice_attention += int(chunk) * (2 * int(request.computed) + int(chunk) + 1)
            twice_attention = min(twice_attention, 2**62)  # more is beyond the end of time anyway
    duration = iteration_ps(engine, prefill_tokens, twice_attention, n_decodes, kv_tokens)
    if duration > LATEST_PS - now_ps:
        state.shared[0].error, state.shared[0].error_instance = TIME_OVERFLOW, i
        return
    instance.iteration_start_ps = now_ps
    instance.iteration_end_ps = instance.stretch_end_ps = instance.event_ps = now_ps + duration
    instance.stretch = 1
    instance.wake_ps = NEVER
    instance.is_decoding = 1 if n_decodes > 0 else 0
    instance.largest_prefill_tokens = max(instance.largest_prefill_tokens, prefill_tokens)
    instance.largest_kv_tokens = max(instance.largest_kv_tokens, kv_tokens)
    instance.least_free_blocks = min(instance.least_free_blocks, instance.free_blocks)


@kernel
def run_on(state, i, instance, engine):
    """Extend a decode iteration in flight to all that must follow it undisturbed."""
    if state.shared[0].is_time_dependent and instance.n_waiting > 0:
        return
    following = instance.next_finish - instance.iteration - 1
    if engine.kind != STATIC:
        # Vidur's engines look for a free block even when none is taken, so their stretch stops at free = 0.
        free = instance.free_blocks - (0 if engine.kind == VLLM_V1 else 1)
        bound = instance.n_decoding * (whole_blocks(state.shared[0], following) + 1)
        if free < 0:
            following = 0
        elif bound > free and blocks_for_stretch(state, i, instance, 1, following) > free:
            following = iterations_within(state, i, instance, 1, free)
            instance.n_cut_by_blocks += 1
    first = float(instance.iteration_end_ps - instance.iteration_start_ps)
    step = 0.5 * instance.n_decoding * engine.kv_ps
    while (following + 1) * (first + step * following) > LATEST_PS - instance.iteration_start_ps:
        following //= 2  # close to the end of time launch() looks at every iteration
    if following > 0:
        _set_length(instance, engine, following + 1)
        instance.largest_kv_tokens = max(
            instance.largest_kv_tokens, instance.kv_tokens + instance.n_decoding * following
        )


@kernel
def _set_length(instance, engine, k):
    first = instance.iteration_end_ps - instance.iteration_start_ps
    step = instance.n_decoding * engine.kv_ps
    instance.stretch = k
    instance.stretch_end_ps = instance.iteration_start_ps + stretch_ps(first, step, k)
    instance.event_ps = instance.stretch_end_ps


@kernel
def cut_at_arrival(state, instance, engine, r, now_ps):
    """End the stretch after the iteration in flight at now_ps, if the request placed there might be admitted next."""
    cluster = state.shared[0]
    if (
        not cluster.is_time_dependent
    ):  # under such an order every iteration start looks at who waits
        may_evict = engine.kind == VLLM_V0 and cluster.order == PRIORITY
        may_run = has_seat(instance, engine) or may_evict
        is_next = instance.head == r or engine.bypass_blocked
        if engine.kind == STATIC or not (is_next and may_run):
            return
    k = _iterations_started(instance, engine, now_ps)
    if k < instance.stretch:
        _set_length(instance, engine, k)
        instance.n_cut_by_arrival += 1


@kernel
def _iterations_started(instance, engine, now_ps):
    """Return how many iterations of the stretch start before now_ps (at least one)."""
    if now_ps <= instance.iteration_end_ps:
        return 1
    first = instance.iteration_end_ps - instance.iteration_start_ps
    step = instance.n_decoding * engine.kv_ps
    return iterations_until(first, step, now_ps - instance.iteration_start_ps)


@kernel
def split_at_read(state, i, instance, now_ps):
    """Complete the iterations of the stretch that ended before now_ps, so that block counts are those of now_ps."""
    if (
        instance.stretch_end_ps == NEVER
        or now_ps <= instance.iteration_end_ps
        or instance.stretch == 1
    ):
        return
    engine = state.engines[instance.engine]
    started = min(_iterations_started(instance, engine, now_ps), instance.stretch)
    done = started - 1
    first = instance.iteration_end_ps - instance.iteration_start_ps
    step = instance.n_decoding * engine.kv_ps
    if engine.kind != STATIC:
        instance.free_blocks -= blocks_for_stretch(state, i, instance, 1, done)
    instance.iteration += done
    instance.kv_tokens += instance.n_decoding * done
    instance.busy_ps += stretch_ps(first, step, done)
    instance.iteration_start_ps += stretch_ps(first, step, done)
    instance.iteration_end_ps = instance.iteration_start_ps + first + step * done
    instance.stretch -= done
    instance.n_iterations += done
    instance.n_cut_by_read += 1


@cold_kernel
def interrupt(state, i, now_ps):
    """Bring instance i to now and let it decide anew after the iteration in flight, if any.

    For whoever changes its blocks or seats from outside: a stretch was planned with those there were. Changes no
    result by itself.
    """
    shared, instance = state.shared[0], state.instances[i]
    call_catch_up(shared.catch_up_address, shared.state_pointer, i, now_ps, BLOCKS)
    if instance.stretch_end_ps != NEVER and instance.stretch > 1:
        _set_length(instance, state.engines[instance.engine], 1)
        if instance.stretch_end_ps <= now_ps:  # it ends now, inside the stretch as it was planned
            call_catch_up(shared.catch_up_address, shared.state_pointer, i, now_ps, BLOCKS)


@kernel
def settle(instance, now_ps):
    """Let an instance that lost a request start anew or sleep, unless an iteration is in flight."""
    if instance.stretch_end_ps == NEVER:
        instance.wake_ps = instance.event_ps = NEVER
        wake(instance, now_ps)


@kernel
def wake(instance, now_ps):
    """Let an instance without iteration in flight form one now, if it has any work; it may have slept."""
    if instance.stretch_end_ps == NEVER and instance.n_running + instance.n_waiting > 0:
        instance.wake_ps, instance.event_ps = now_ps, now_ps + 1
