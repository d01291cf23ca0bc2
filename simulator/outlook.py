"""What the running requests of an instance are predicted to need: tokens, KV work, and when their blocks are free.

All is a function of the instance as it stands, whoever looked before. The walk over its seats is kept (OUTLOOK) until
who runs or decodes changes, or a decoder outlives its prediction; until then every decode iteration takes one token off
each decoder that is due, so the sums follow in closed form: after d iterations work is less by d*known + d*(d - 1)/2.
Blocks to be freed: a histogram over the iterations left at the last change of seats, two buckets an octave.
Lengths follow predicted_work.py, never the truth. A static batch ends as a whole, with its longest.
Source: docs/engine.md section 9.
"""

import math
from typing import NamedTuple

import numpy as np

from servegym.simulator.block_arithmetic import blocks_for
from servegym.simulator.calls import centre, state_at
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.predicted_work import (
    OUTLIVED_TOKENS,
    kv_work,
    predicted_left,
    unstreamed,
)
from servegym.simulator.state import FREED_BUCKETS, NEVER, STATIC


class Outlook(NamedTuple):
    """What the running requests of an instance are predicted to need, all int64."""

    n_prefilling: int | np.int64
    prefill_tokens: int | np.int64  # that these have not computed at the last iteration end
    tokens_left: int | np.int64  # output tokens of all that run
    end_tokens: int | np.int64  # in KV, each request at its predicted end
    work: int | np.int64  # KV-token work of all that run
    next_left: int | np.int64  # iterations to the next predicted completion; 0 if none runs
    n_decoding: int | np.int64
    kv_tokens: int | np.int64  # that these read in their next iteration


@kernel
def iterations_ended(instance, now_ps):
    """Return the decode iterations of an instance, which stands at now, that ended at or before now."""
    is_ending = instance.stretch_end_ps != NEVER and instance.iteration_end_ps <= now_ps
    return instance.iteration + (1 if is_ending else 0)  # inside a stretch


@kernel
def outlook_at(state, i, now_ps):
    """Return the Outlook of instance i, which stands at now with its blocks (may renew its OUTLOOK)."""
    instance, kept = state.instances[i], centre(state).outlooks[i]
    iteration = iterations_ended(instance, now_ps)
    if kept.changes != instance.seat_changes or iteration >= kept.next_due:
        walk_seats(state.shared[0].state_pointer, i, iteration)
    n_decoding, n_still, n_due = np.int64(instance.n_decoding), np.int64(kept.n_still), kept.n_due
    n_overdue, since = n_decoding - n_due, iteration - kept.iteration
    kv_tokens = instance.kv_tokens + n_decoding * (iteration - instance.iteration)
    tokens_left = kept.due_left - n_due * since + OUTLIVED_TOKENS * n_overdue + kept.still_left
    end_tokens = kv_tokens + kept.still_known + tokens_left - n_decoding - n_still
    overdue_known = kv_tokens - (kept.due_known + n_due * since)
    work = kept.due_work - since * kept.due_known - n_due * (since * (since - 1) >> 1)
    work += OUTLIVED_TOKENS * overdue_known + n_overdue * kv_work(0, OUTLIVED_TOKENS)
    return Outlook(
        n_still,
        _prefill_tokens(state, instance) if n_still > 0 else 0,
        tokens_left,
        end_tokens,
        work + kept.still_work,
        _next_left(kept, iteration, n_overdue),
        n_decoding,
        kv_tokens,
    )


@kernel
def _prefill_tokens(state, instance):
    total, begin = 0, instance.first_slot
    for p in range(begin + instance.n_decoding, begin + instance.n_running):
        request = state.requests[state.slots[p].request]
        total += request.prompt_tokens + request.generated - request.computed
    return total


@kernel
def _next_left(kept, iteration, n_overdue):
    """Return the iterations to the next predicted completion, of a static batch to its last; 0 if none runs."""
    if kept.is_batch:
        most = OUTLIVED_TOKENS if n_overdue > 0 else kept.next_still
        return max(most, kept.last_due - iteration) if kept.n_due > 0 else most
    least = kept.next_due - iteration if kept.n_due > 0 else NEVER
    if n_overdue > 0:
        least = min(least, OUTLIVED_TOKENS)
    if kept.n_still > 0:
        least = min(least, kept.next_still)
    return least if least < NEVER else 0


@cold_kernel
def walk_seats(state_pointer, i, iteration):
    """Add up what instance i's running requests are predicted to need at an iteration (mutates its OUTLOOK)."""
    state = state_at(state_pointer)
    instance, kept = state.instances[i], centre(state).outlooks[i]
    n_due, due_left, due_known, due_work = 0, 0, 0, 0
    least, most, begin = NEVER, 0, instance.first_slot
    for p in range(begin, begin + instance.n_decoding):
        slot = state.slots[p]
        request = state.requests[slot.request]
        generated = request.output_tokens - (slot.finish_iteration - iteration)
        left = unstreamed(request, generated)
        if left > 0:
            known = request.prompt_tokens + generated
            n_due, due_left, due_known = n_due + 1, due_left + left, due_known + known
            due_work += kv_work(known, left)
            least, most = min(least, left), max(most, left)
    kept.changes, kept.iteration = instance.seat_changes, iteration
    kept.n_due, kept.due_left, kept.due_known, kept.due_work = n_due, due_left, due_known, due_work
    kept.next_due = iteration + least if n_due > 0 else NEVER
    kept.last_due = iteration + most
    kept.is_batch = 1 if state.engines[instance.engine].kind == STATIC else 0
    _walk_prefills(state, instance, kept)


@kernel
def _walk_prefills(state, instance, kept):
    """Do the same for those that prefill; behind a static batch's decoders sit those that are done."""
    kept.n_still = kept.still_left = kept.still_known = kept.still_work = kept.next_still = 0
    if kept.is_batch and instance.n_decoding > 0:
        return
    begin = instance.first_slot
    for p in range(begin + instance.n_decoding, begin + instance.n_running):
        request = state.requests[state.slots[p].request]
        known = int(request.prompt_tokens) + int(request.generated)
        left = predicted_left(request, request.generated)
        kept.still_left += left
        kept.still_known += known
        kept.still_work += kv_work(known, left)
        is_next = left > kept.next_still if kept.is_batch else left < kept.next_still
        if is_next or kept.n_still == 0:
            kept.next_still = left
        kept.n_still += 1


@kernel
def freed_blocks_at(state, i):
    """Return the OUTLOOK of instance i with the blocks that its running requests will free by iterations left."""
    kept = centre(state).outlooks[i]
    if kept.freed_changes != state.instances[i].seat_changes:
        fill_freed(state.shared[0].state_pointer, i)
    return kept


@cold_kernel
def fill_freed(state_pointer, i):
    """Sort the blocks of instance i's running requests by what they had left at the last change of seats."""
    state = state_at(state_pointer)
    instance, kept = state.instances[i], centre(state).outlooks[i]
    engine = state.engines[instance.engine]
    kept.freed_changes, kept.freed_blocks = instance.seat_changes, 0
    for b in range(FREED_BUCKETS):
        kept.freed[b] = 0
    begin, longest = instance.first_slot, 0
    for position in range(instance.n_running):
        slot = state.slots[begin + position]
        request = state.requests[slot.request]
        generated = int(request.generated)
        if position < instance.n_decoding:
            left = slot.finish_iteration - instance.seats_iteration
            generated = request.output_tokens - left
        elif engine.kind == STATIC and instance.n_decoding > 0:
            break  # those behind are done
        left = predicted_left(request, generated)
        longest = max(longest, left)
        if engine.kind != STATIC:
            blocks = blocks_for(state.shared[0], request.prompt_tokens + generated)
            kept.freed[bucket_of(left)] += blocks
            kept.freed_blocks += blocks
    if longest > 0 and engine.kind == STATIC:
        kept.freed_blocks = engine.kv_blocks - instance.free_blocks
        kept.freed[bucket_of(longest)] = kept.freed_blocks


@kernel
def bucket_of(left):
    """Return the bucket of iterations left >= 1: 2**k and 1.5 * 2**k begin one; the last holds all that are longer."""
    mantissa, exponent = math.frexp(float(left))  # mantissa in [.5, 1)
    return min(2 * (exponent - 1) + (1 if mantissa >= 0.75 else 0), FREED_BUCKETS - 1)


@kernel
def iterations_to_free(freed, freed_blocks, blocks, since):
    """Return in how many iterations so many blocks are freed (float): inside a bucket, evenly from end to end.

    freed_blocks: sum of freed. since: iterations since the last change of seats. Beyond all that is held, in
    proportion; infinite if nothing is.
    """
    if blocks <= 0:
        return 0.0
    if freed_blocks <= 0:
        return math.inf
    rest, begin, width, reached = float(min(blocks, freed_blocks)), 1.0, 0.5, 0.0
    for b in range(FREED_BUCKETS):
        if freed[b] >= rest:
            reached = begin + width * rest / freed[b]
            break
        rest -= freed[b]
        begin += width
        if b % 2 == 1:
            width *= 2.0
    reached = max(1.0, reached - since)
    return reached * max(1.0, blocks / freed_blocks)


@cold_kernel
def store_outlook(state, i, refresh_ps):
    """Store what routers see of it from a refresh on, at which instance i stands with its blocks."""
    instance, kept = state.instances[i], freed_blocks_at(state, i)
    seen = outlook_at(state, i, refresh_ps)
    kept.seen_prefilling, kept.seen_prefill_tokens = seen.n_prefilling, seen.prefill_tokens
    kept.seen_tokens_left, kept.seen_end_tokens = seen.tokens_left, seen.end_tokens
    kept.seen_work, kept.seen_next_left = seen.work, seen.next_left
    kept.seen_decoding, kept.seen_kv_tokens = seen.n_decoding, seen.kv_tokens
    kept.seen_waiting_prefill_tokens = instance.waiting_prefill_tokens
    kept.seen_waiting_predicted_tokens = instance.waiting_predicted_tokens
    kept.seen_waiting_work = instance.waiting_work
    kept.seen_since = iterations_ended(instance, refresh_ps) - instance.seats_iteration
    kept.seen_freed_blocks = kept.freed_blocks
    for b in range(FREED_BUCKETS):
        kept.seen_freed[b] = kept.freed[b]
