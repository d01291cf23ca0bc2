"""Links: where kernels find the arrays of a State, so that a compiled function is handed one address, not arrays.

Written whenever arrays are placed anew (Simulation). An address holds as long as the arrays live, in this process.
"""

from servegym.simulator.calls import call_catch_up, call_run, store
from servegym.simulator.kernel import kernel
from servegym.simulator.state import BLOCKS, Centre, Copies, Core


@kernel
def link(state, address, words):
    """Write the descriptors of a State's arrays to four places of so many words, and their addresses into `shared`."""
    shared = state.shared[0]
    shared.state_pointer = store(address, core_of(state))
    shared.centre_pointer = store(address + 8 * words, centre_of(state))
    shared.copies_pointer = store(address + 16 * words, copies_of(state))
    shared.what_if_pointer = store(address + 24 * words, what_if_core_of(state))


@kernel
def proceed(run_address, state_pointer, until_ps):
    """Run to an instant (event_loop.run), from Python; return the error code."""
    return call_run(run_address, state_pointer, until_ps)


@kernel
def measure(catch_up_address, state_pointer, i, now_ps):
    """Bring instance i's counts and blocks to now_ps, from Python."""
    call_catch_up(catch_up_address, state_pointer, i, now_ps, BLOCKS)


@kernel
def core_of(state):
    """Return the part of a State that instances are made of."""
    return Core(
        state.shared,
        state.engines,
        state.instances,
        state.requests,
        state.slots,
        state.phases,
        state.views,
        state.params,
        state.memory,
        state.streams,
        state.policies,
        state.tiers,
    )


@kernel
def what_if_core_of(state):
    """Return the Core in which the copy that a what-if plays with is the last of `instances`."""
    return Core(
        state.copied_shared,
        state.engines,
        state.copied_instances,
        state.requests,
        state.copied_slots,
        state.copied_phases,
        state.views,
        state.params,
        state.memory,
        state.streams,
        state.policies,
        state.tiers,
    )


@kernel
def centre_of(state):
    """Return the part of a State that stands above the instances."""
    return Centre(
        state.gateway,
        state.queues,
        state.control,
        state.moves,
        state.ordered,
        state.ledger,
        state.faults,
        state.timers,
        state.timeouts_ps,
        state.tally,
        state.tariffs,
        state.outlooks,
        state.waits,
        state.first_to_move,
    )


@kernel
def copies_of(state):
    """Return the part of a State that a what-if plays with."""
    return Copies(
        state.copied_shared,
        state.copied_instances,
        state.copied_slots,
        state.copied_phases,
        state.copied_requests,
    )
