"""The waiting requests of one instance: a linked list under fcfs, a skew heap under any other order.

Both are linked through the request records, so an instance needs no capacity. Heap order is the least
(key, arrival, index), with the tier as an integer key under `priority`.
Source: Sleator and Tarjan, Self-adjusting heaps (1986), top-down skew heaps.
"""

import numpy as np

from servegym.simulator.block_arithmetic import blocks_for
from servegym.simulator.calls import call_order
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.state import BAD_KEY, BY_POLICY, FCFS, NO_REQUEST, PRIORITY, Request


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
def known_blocks(state, request):
    """Return the KV blocks of all known tokens of a waiting request."""
    return blocks_for(state.shared[0], request.prompt_tokens + request.generated)


@kernel
def append_waiting(state, instance, r):
    """Let a newly placed request wait (mutates the queue, n_waiting, waiting_blocks and the request's key)."""
    if state.shared[0].order == FCFS:
        state.requests[r].next = NO_REQUEST
        if instance.head == NO_REQUEST:
            instance.head = r
        else:
            state.requests[instance.tail].next = r
        instance.tail = r
    else:
        evaluate_key(state, r, state.shared[0].now_ps)
        _push_heap(state, instance, r)
    _count_waiting(state, instance, r, 1)


@kernel
def return_waiting(state, instance, r):
    """Let a preempted or passed-over request wait again: at the front under fcfs, else by its key."""
    if state.shared[0].order == FCFS:
        state.requests[r].next = instance.head
        if instance.head == NO_REQUEST:
            instance.tail = r
        instance.head = r
    else:
        _push_heap(state, instance, r)
    _count_waiting(state, instance, r, 1)


@kernel
def pop_waiting(state, instance):
    """Take the head out of the queue and return it."""
    r = instance.head
    if state.shared[0].order == FCFS:
        instance.head = state.requests[r].next
    else:
        instance.head = _merge(state, state.requests[r].next, state.requests[r].right)
    _count_waiting(state, instance, r, -1)
    return r


@kernel
def evaluate_key(state, r, now_ps):
    """Set the request's key if the order is a policy's."""
    cluster = state.shared[0]
    if cluster.order == BY_POLICY:
        begin, end = cluster.dispatch_params, cluster.order_params
        request = Request(state.requests, np.int64(r))
        key = call_order(cluster.order_address, request, now_ps, state.params[begin:end])
        if np.isnan(key):  # it would compare as neither before nor after anything
            cluster.error, cluster.error_instance = BAD_KEY, r
        state.requests[r].key = key


@cold_kernel
def reorder_waiting(state, instance, now_ps):
    """Evaluate every waiting key anew and rebuild the heap (time-dependent orders only)."""
    stack, root = instance.head, NO_REQUEST
    while stack != NO_REQUEST:
        # Flatten the old heap: hang the left subtree under the right spine, one node at a time.
        r = stack
        left, right = state.requests[r].next, state.requests[r].right
        if left != NO_REQUEST:
            state.requests[r].next, state.requests[r].right = state.requests[left].right, right
            state.requests[left].right = r
            stack = left
            continue
        stack = right
        state.requests[r].next = state.requests[r].right = NO_REQUEST
        evaluate_key(state, r, now_ps)
        root = _merge(state, root, r)
    instance.head = root


@kernel
def _count_waiting(state, instance, r, sign):
    instance.n_waiting += sign
    instance.waiting_blocks += sign * known_blocks(state, state.requests[r])


@kernel
def _push_heap(state, instance, r):
    state.requests[r].next = state.requests[r].right = NO_REQUEST
    instance.head = _merge(state, instance.head, r)


@kernel
def _merge(state, a, b):
    """Return the root of the merged heaps a and b (either may be NO_REQUEST)."""
    if a == NO_REQUEST:
        return b
    if b == NO_REQUEST:
        return a
    if comes_before(state, b, a):
        a, b = b, a
    root = a
    while True:
        node = state.requests[a]
        child = node.right
        node.right = node.next
        if child == NO_REQUEST:
            node.next = b
            return root
        if comes_before(state, b, child):
            child, b = b, child
        node.next = child
        a = child
