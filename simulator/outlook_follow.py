"""Keeping an instance's OUTLOOK while seats change, where that takes no walk over them: sums at its base iteration.

For runs in which somebody looks all the time (shared.follows_outlook). What is not followed here, preemptions, moves
and static batches among it, leaves `changes` behind seat_changes, and the next look walks (outlook.py). Either way the
values are the same.
"""

from servegym.simulator.calls import centre
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.predicted_work import kv_work, predicted_left, unstreamed
from servegym.simulator.state import NEVER

LOST = -1  # of `changes`: to be walked


@kernel
def is_followed(state, i):
    """Return whether the OUTLOOK of instance i is kept and stands at the present seats."""
    if not state.shared[0].follows_outlook:
        return False
    kept = centre(state).outlooks[i]
    return kept.changes == state.instances[i].seat_changes and not kept.is_batch


@cold_kernel
def follow_seat(kept, request):
    """Add a request that begins to prefill (mutates kept, which stands at the seats with it)."""
    left, known = predicted_left(request, request.generated), _known(request, request.generated)
    kept.next_still = left if kept.n_still == 0 else min(kept.next_still, left)
    _add_still(kept, left, known, 1)
    kept.changes += 1


@cold_kernel
def follow_prefilled(kept, request):
    """Take out a request whose prefill has ended and streamed a token."""
    generated = int(request.generated) - 1
    left, known = predicted_left(request, generated), _known(request, generated)
    _add_still(kept, left, known, -1)
    if kept.n_still == 0:
        kept.next_still = 0
    elif left == kept.next_still:
        kept.changes = LOST


@cold_kernel
def follow_decoder(kept, request, iteration):
    """Add a request that decodes from an iteration on."""
    left = unstreamed(request, request.generated)
    if left <= 0:
        kept.changes = LOST
        return
    _add_due(kept, request, iteration + left, _known(request, request.generated) - iteration, 1)
    kept.next_due = min(kept.next_due, iteration + left)


@cold_kernel
def follow_finish(kept, request, iteration):
    """Take out a decoder that finishes at the end of an iteration."""
    end = iteration + unstreamed(request, request.output_tokens)
    if end <= kept.iteration:
        return  # it was overdue already
    known = _known(request, request.output_tokens) - iteration
    _add_due(kept, request, end, known, -1)
    if kept.n_due == 0:
        kept.next_due = NEVER
    elif end == kept.next_due:
        kept.changes = LOST


@kernel
def _known(request, generated):
    return int(request.prompt_tokens) + int(generated)


@kernel
def _add_still(kept, left, known, sign):
    kept.still_left += sign * left
    kept.still_known += sign * known
    kept.still_work += sign * kv_work(known, left)
    kept.n_still += sign


@kernel
def _add_due(kept, request, end, known, sign):
    """Add or take out a decoder whose prediction ends with iteration `end`; known: tokens at iteration 0."""
    left, known_then = end - kept.iteration, known + kept.iteration
    kept.n_due += sign
    kept.due_left += sign * left
    kept.due_known += sign * known_then
    kept.due_work += sign * kv_work(known_then, left)
