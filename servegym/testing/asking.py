"""Asking a policy about a simulation that stands still, as the engine would ask it.

Memory, parameters and the random stream are the caller's own copies, so that a question can be put twice.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from servegym.simulator.calls import (
    call_admission,
    call_dispatch,
    call_migration,
    call_order,
    call_predict,
    call_queue,
    call_remaining,
    call_scaling,
)
from servegym.simulator.gateway import set_router, view_of
from servegym.simulator.kernel import kernel
from servegym.simulator.links import core_of
from servegym.simulator.policy import Policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import (
    ADMISSION,
    ANY_ROUTER,
    DISPATCH,
    ESTIMATION,
    MIGRATION,
    ORDERING,
    QUEUEING,
    REMAINING,
    ROLES,
    Request,
)
from servegym.simulator.views import context_tokens, has_taker, head_blocks, n_waiting, used_blocks
from servegym.testing.guards import within_guards

NOT_ASKED = -99.0  # the engine would not have asked either


@kernel
def ask_policy(all_state, role, address, r, moves, params, memory, rng):
    """Return the answer of the policy of a role at an address about request r, as float64."""
    state = core_of(all_state)
    shared = state.shared[0]
    cluster, request = view_of(state), Request(state.requests, np.int64(r))
    set_router(state, r)
    if role == DISPATCH:
        if not has_taker(cluster, request):
            return NOT_ASKED
        return float(call_dispatch(address, cluster, request, params, memory, rng))
    if role == ADMISSION:
        return float(call_admission(address, cluster, request, params, memory, rng))
    if role == ORDERING:
        return call_order(address, request, shared.now_ps, params)
    if role == ESTIMATION:
        return call_predict(address, request, params, memory, rng)
    if role == REMAINING:
        record: Any = state.requests[r]
        return call_remaining(address, request, np.int64(record.generated), params, memory)
    shared.router = ANY_ROUTER
    if role == QUEUEING:
        return float(call_queue(address, cluster, params, memory, rng))
    if role == MIGRATION:
        return float(call_migration(address, cluster, moves, params, memory, rng))
    return float(call_scaling(address, cluster, params, memory, rng))


@kernel
def bring_up_to_date(all_state, r):
    """Read every instance, as the router of request r and as all routers, so that later looks find nothing to do."""
    state = core_of(all_state)
    cluster, total = view_of(state), 0
    for is_any in range(2):
        if is_any:
            state.shared[0].router = ANY_ROUTER
        else:
            set_router(state, r)
        for i in range(state.instances.shape[0]):
            total += n_waiting(cluster, i) + used_blocks(cluster, i)
            total += context_tokens(cluster, i) + head_blocks(cluster, i)
    return total


@dataclass(frozen=True, eq=False)
class Answer:
    """What a policy said, and what it left behind in its own arrays."""

    value: float
    moves: NDArray[np.int64]  # [room + some beyond it, 3]
    params: NDArray[np.float64]
    memory: NDArray[np.float64]
    rng: NDArray[np.uint64]


UNTOUCHED = -9
BEYOND = 4  # rows behind the moves that it is given


def ask(simulation: Simulation, policy: Policy, r: int, room: int = 64) -> Answer:
    """Return the policy's answer about request r at the present, with the memory it has there, in copies.

    room: rows of moves that a migration policy is given; BEYOND more, of UNTOUCHED, lie behind them.
    """
    state, role = simulation.state, ROLES.index(policy.kind)
    record = state.policies[role]
    moves = np.full((room + BEYOND, 3), UNTOUCHED, np.int64)
    given = state.params[int(record["params_begin"]) : int(record["params_end"])]
    remembered = state.memory[int(record["memory_begin"]) : int(record["memory_end"])]
    (params, _), (memory, _) = within_guards(given), within_guards(remembered)
    rng, _ = within_guards(state.streams[role : role + 1])
    value = ask_policy(state, role, policy.address, r, moves[:room], params, memory, rng)
    return Answer(float(value), moves, params, memory, rng)
