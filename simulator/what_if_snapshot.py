"""Snapshots: instances as they stood at the last multiple of snapshot_interval_s, from which a what-if starts.

An instance is copied when its clock passes such an instant, before anything is placed on it after. Rows 0 .. M - 1 of
`copied_instances` are the snapshots (`seen_ps` says of when), the last row is what a what-if plays with; the requests
stand in copied_requests[N + index]. There, `instance` says where a request that arrived since was placed.
Source: docs/engine.md section 11.
"""

from servegym.simulator.calls import call_catch_up, copies
from servegym.simulator.kernel import cold_kernel, kernel
from servegym.simulator.state import BLOCKS, FCFS, NO_REQUEST


@kernel
def scratch_row(state):
    """Return the row of copied_instances that a what-if plays with."""
    return copies(state).instances.shape[0] - 1


@kernel
def last_snapshot_ps(shared, now_ps):
    """Return the instant of the last snapshot at or before now."""
    return now_ps // shared.snapshot_interval_ps * shared.snapshot_interval_ps


@kernel
def copy_instance(state, instances, slots, phases, i, row):
    """Copy instance i of some arrays, its seats and phases, to a row of the copied ones."""
    seats = copies(state).slots.shape[0] // copies(state).instances.shape[0]
    size = state.shared[0].block_size
    source, base = instances[i].first_slot, row * seats
    copies(state).instances[row] = instances[i]
    copies(state).instances[row].first_slot = base
    for p in range(instances[i].n_running):
        copies(state).slots[base + p] = slots[source + p]
    for p in range(size):
        copies(state).phases[row * size + p] = phases[i * size + p]


@kernel
def snapshot_of(state, i, snapshot_ps):
    """Bring instance i past the snapshot, which stores it, unless that was done."""
    shared = state.shared[0]
    if copies(state).instances[i].seen_ps < snapshot_ps:
        call_catch_up(shared.catch_up_address, shared.state_pointer, i, snapshot_ps, BLOCKS)


@cold_kernel
def store_snapshot(state, i, snapshot_ps):
    """Copy instance i, which stands at the snapshot, and its requests."""
    copy_instance(state, state.instances, state.slots, state.phases, i, i)
    copies(state).instances[i].seen_ps = snapshot_ps
    instance, known = state.instances[i], state.requests.shape[0]
    for p in range(instance.first_slot, instance.first_slot + instance.n_running):
        r = int(state.slots[p].request)
        copies(state).requests[known + r] = state.requests[r]
    n = 0
    if instance.head != NO_REQUEST:
        copies(state).requests[0].instance, n = instance.head, 1
    k = 0
    while k < n:  # a list of whom to copy, growing by those behind them
        r = int(copies(state).requests[k].instance)
        request = state.requests[r]
        copies(state).requests[known + r] = request
        if request.next != NO_REQUEST:
            copies(state).requests[n].instance = request.next
            n += 1
        if state.shared[0].order != FCFS and request.right != NO_REQUEST:
            copies(state).requests[n].instance = request.right
            n += 1
        k += 1


@cold_kernel
def note_placement(state, i, r):
    """Store instance i's last snapshot before it changes, and remember that request r is placed there."""
    shared = state.shared[0]
    snapshot_of(state, i, last_snapshot_ps(shared, shared.now_ps))
    copies(state).requests[state.requests.shape[0] + r].instance = i


@kernel
def was_placed(state, i, r):
    """Return whether request r, which arrived after the last snapshot, was placed on instance i."""
    return copies(state).requests[state.requests.shape[0] + r].instance == i
