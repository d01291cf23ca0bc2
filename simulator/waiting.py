"""The waiting requests of one instance: a linked list under fcfs, a skew heap under any other order.

Both are linked through the request records, so an instance needs no capacity. Heap order is the least
(key, arrival, index), with the tier as an integer key under `priority`. Where requests may leave from the middle, by a
move or a time limit, they are linked back as well (WAIT).
Source: Sleator and Tarjan, Self-adjusting heaps (1986), top-down skew heaps.
"""

import numpy as np

from servegym.simulator.block_arithmetic import blocks_for
from servegym.simulator.calls import call_order, centre
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.predicted_work import kv_work, predicted_left
from servegym.simulator.state import (
    BAD_KEY,
    BY_POLICY,
    FCFS,
    NO_REQUEST,
    ORDERING,
    PRIORITY,
    Request,
)
from servegym.simulator.urgency import rank_waiting, unrank_waiting


@kernel
def comes_before(state, a, b):
    """Return whether request a stands before b in any order but fcfs."""
    first, second = state.requests[a], state.requests[b]
    if state.shared[0].order == PRIORITY:
        if first.tier != second.tier:
            return first.tier < second.tier
    elif first.key != second.key:
        return first.key < second.key
    if first.arrival_ps != second.arrival_ps:
        return first.arrival_ps < second.arrival_ps
    return a < b


@kernel
def append_waiting(state, instance, r):
    """Let a newly placed request wait (mutates the queue, n_waiting, waiting_blocks and the request's key)."""
    if state.shared[0].order == FCFS:
        _append(state, instance, r)
    else:
        evaluate_key(state, r, state.shared[0].now_ps)
        _push_heap(state, instance, r)
    _count_waiting(state, instance, r, 1)
    if state.shared[0].ranks_waiting:
        rank_waiting(state.shared[0].state_pointer, r)


@kernel
def push_waiting(state, queue, r):
    """Let a request wait in a gateway queue, which is a heap under any order (mutates both)."""
    evaluate_key(state, r, state.shared[0].now_ps)
    _push_heap(state, queue, r)
    _count_waiting(state, queue, r, 1)


@kernel
def pop_queue(state, queue):
    """Take the head out of a gateway queue and return it."""
    r = np.int64(queue.head)
    queue.head = merge(
        state, np.int64(state.requests[r].next), np.int64(state.requests[r].right), False
    )
    _count_waiting(state, queue, r, -1)
    return r


@kernel
def append_held(state, fifo, r):
    """Let a request wait at the end of the admission FIFO, a linked list under any order."""
    _append(state, fifo, r)
    _count_waiting(state, fifo, r, 1)


@kernel
def _append(state, queue, r):
    state.requests[r].next = NO_REQUEST
    if queue.head == NO_REQUEST:
        queue.head = r
    else:
        state.requests[queue.tail].next = r
        _link_back(state, r, np.int64(queue.tail))
    queue.tail = r


@kernel
def _link_back(state, r, before):
    """Note whom request r hangs on, if that may be asked; r may be NO_REQUEST."""
    if state.shared[0].links_back and r != NO_REQUEST:
        centre(state).waits[r].back = before


@kernel
def return_waiting(state, instance, r):
    """Let a preempted request wait again: at the front under fcfs, else by its key."""
    put_back(state, instance, r)
    if state.shared[0].ranks_waiting:
        rank_waiting(state.shared[0].state_pointer, r)


@kernel
def put_back(state, instance, r):
    """Let a request that was set aside wait again, as if it had never left."""
    if state.shared[0].order == FCFS:
        state.requests[r].next = instance.head
        if instance.head == NO_REQUEST:
            instance.tail = r
        _link_back(state, np.int64(instance.head), r)
        instance.head = r
    else:
        _push_heap(state, instance, r)
    _count_waiting(state, instance, r, 1)


@kernel
def pop_waiting(state, instance):
    """Take the head out of the queue and return it."""
    r = set_aside(state, instance)
    if state.shared[0].ranks_waiting:
        unrank_waiting(state.shared[0].state_pointer, r)
    return r


@kernel
def set_aside(state, instance):
    """Take the head out of the queue until it is put back in the same iteration start: it keeps its rank."""
    r = np.int64(instance.head)
    if state.shared[0].order == FCFS:
        instance.head = state.requests[r].next
    else:
        instance.head = merge(
            state, np.int64(state.requests[r].next), np.int64(state.requests[r].right), False
        )
    _count_waiting(state, instance, r, -1)
    return r


@kernel
def evaluate_key(state, r, now_ps):
    """Set the request's key if the order is a policy's."""
    cluster = state.shared[0]
    if cluster.order == BY_POLICY:
        policy = state.policies[ORDERING]
        request = Request(state.requests, np.int64(r))
        params = state.params[policy.params_begin : policy.params_end]
        key = call_order(policy.address, request, now_ps, params)
        if np.isnan(key):  # it would compare as neither before nor after anything
            cluster.error, cluster.error_instance = BAD_KEY, r
        state.requests[r].key = key


@cold_kernel
def reorder_waiting(state, instance, now_ps):
    """Evaluate every waiting key anew and rebuild the heap (time-dependent orders only)."""
    stack, root = np.int64(instance.head), NO_REQUEST
    while stack != NO_REQUEST:
        # Flatten the old heap: hang the left subtree under the right spine, one node at a time.
        r = stack
        left, right = state.requests[r].next, state.requests[r].right
        if left != NO_REQUEST:
            state.requests[r].next, state.requests[r].right = state.requests[left].right, right
            state.requests[left].right = r
            stack = np.int64(left)
            continue
        stack = np.int64(right)
        state.requests[r].next = state.requests[r].right = NO_REQUEST
        evaluate_key(state, r, now_ps)
        root = merge(state, root, r, False)
    instance.head = root


@kernel
def _count_waiting(state, instance, r, sign):
    request = state.requests[r]
    known = request.prompt_tokens + request.generated
    left = predicted_left(request, request.generated)
    instance.n_waiting += sign
    instance.waiting_blocks += sign * blocks_for(state.shared[0], known)
    instance.waiting_prefill_tokens += sign * known
    instance.waiting_predicted_tokens += sign * left
    instance.waiting_work += sign * kv_work(int(known), left)
    if request.preemptions > 0:
        instance.n_once_preempted += sign


@kernel
def _push_heap(state, instance, r):
    state.requests[r].next = state.requests[r].right = NO_REQUEST
    instance.head = merge(state, np.int64(instance.head), r, False)


@kernel
def finishes_before(state, a, b):
    """Return whether completion a is shown before b."""
    first, second = state.requests[a], state.requests[b]
    if first.finish_ps != second.finish_ps:
        return first.finish_ps < second.finish_ps
    return a < b


@kernel
def merge(state, a, b, by_finish):
    """Return the root of the merged heaps a and b (either may be NO_REQUEST), by the order or by completion."""
    if a == NO_REQUEST:
        return b
    if b == NO_REQUEST:
        return a
    if finishes_before(state, b, a) if by_finish else comes_before(state, b, a):
        a, b = b, a
    root = a
    while True:
        node = state.requests[a]
        child = np.int64(node.right)
        node.right = node.next
        if child == NO_REQUEST:
            node.next = b
            _hang(state, b, a, by_finish)
            return root
        if finishes_before(state, b, child) if by_finish else comes_before(state, b, child):
            child, b = b, child
        node.next = child
        _hang(state, child, a, by_finish)
        a = child


@kernel
def _hang(state, child, parent, by_finish):
    if not by_finish:
        _link_back(state, child, parent)


@kernel
def first_in_walk(state, head):
    """Return (request to visit first, where the walk is) of a walk over a whole queue; NO_REQUEST if it is empty.

    The order has no meaning. A walk must be gone through to its end: it threads the heap while under way
    (Morris, Traversing binary trees simply and cheaply, 1979).
    """
    if state.shared[0].order == FCFS or head == NO_REQUEST:
        return head
    return _descend(state, head)


@kernel
def next_in_walk(state, r):
    """Return the request to visit after r; NO_REQUEST at the end."""
    if state.shared[0].order == FCFS:
        return state.requests[r].next
    right = state.requests[r].right
    return NO_REQUEST if right == NO_REQUEST else _descend(state, right)


@kernel
def _descend(state, r):
    """Return the first request to visit from r on: the leftmost, or r itself when its left subtree was visited."""
    while state.requests[r].next != NO_REQUEST:
        last = state.requests[r].next
        while state.requests[last].right != NO_REQUEST and state.requests[last].right != r:
            last = state.requests[last].right
        if state.requests[last].right == r:
            state.requests[last].right = NO_REQUEST
            return r
        state.requests[last].right = r
        r = state.requests[r].next
    return r


@cold_kernel
def remove_waiting(state, instance, r):
    """Take a request out of the middle of an instance's queue (mutates it)."""
    _take_out(state, instance, r, state.shared[0].order == FCFS)
    _count_waiting(state, instance, r, -1)
    if state.shared[0].ranks_waiting:
        unrank_waiting(state.shared[0].state_pointer, r)


@cold_kernel
def remove_queued(state, queue, r, is_list):
    """Take a request out of the middle of a queue of the gateway; is_list: a linked list, else a heap (mutates it)."""
    _take_out(state, queue, r, is_list)
    _count_waiting(state, queue, r, -1)


@kernel
def _take_out(state, queue, r, is_list):
    """Let what hangs on request r hang on whom r hung on."""
    below = np.int64(state.requests[r].next)
    if not is_list:
        below = merge(state, below, np.int64(state.requests[r].right), False)
    if queue.head == r:
        queue.head = below
        return
    before = np.int64(centre(state).waits[r].back)
    if is_list or state.requests[before].next == r:
        state.requests[before].next = below
    else:
        state.requests[before].right = below
    _link_back(state, below, before)
    if is_list and queue.tail == r:
        queue.tail = before
