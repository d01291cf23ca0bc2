"""The agent's decisions: policies that stop the run until the caller of an environment has answered.

Each keeps its answer in its memory: [is answered, answer, ...]. Asked without one it sets ASKED, and the engine comes
back to it, at the same place, when the run goes on (simulator/event_loop.py).
"""

from servegym.baselines.migration.llumnix import victim
from servegym.baselines.migration.n_tier import least_urgent, move_all
from servegym.baselines.migration.pairs import NOBODY, write_move
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import (
    AGENT,
    Param,
    admission_policy,
    dispatch_policy,
    migration_policy,
    queue_policy,
    scaling_policy,
)
from servegym.simulator.state import (
    ADMISSION,
    ASKED,
    DISPATCH,
    MIGRATION,
    NO_REQUEST,
    QUEUEING,
    SCALING,
)
from servegym.simulator.views import HOLD, is_draining, running_request

SOURCE = "the caller of an environment"
IS_ANSWERED, ANSWER = 0, 1
N_PAIRS, PAIRS = 1, 2  # migration: how many pairs, then source and destination of each
N_TIER, LLUMNIX = 0, 1  # whose rule says which request of a source moves
RULES = ("n-tier", "llumnix")


@kernel
def take_answer(cluster, role, request_index, memory):
    """Return the answer and forget it; without one, let the run wait and return HOLD (mutates memory, cluster)."""
    if memory[IS_ANSWERED] == 0:
        shared = cluster.shared[0]
        shared.error, shared.asked_role, shared.asked_request = ASKED, role, request_index
        return HOLD
    memory[IS_ANSWERED] = 0
    return int(memory[ANSWER])


@dispatch_policy(source=SOURCE, name=AGENT, memory=2)
def dispatch(cluster, request, params, memory, rng):
    """Return the instance that the agent chose."""
    return take_answer(cluster, DISPATCH, request.index, memory)


@admission_policy(source=SOURCE, name=AGENT, memory=2)
def admission(cluster, request, params, memory, rng):
    """Return ACCEPT, HOLD or REJECT, as the agent chose."""
    return take_answer(cluster, ADMISSION, request.index, memory)


@queue_policy(source=SOURCE, name=AGENT, memory=2)
def queue(cluster, params, memory, rng):
    """Return the queue that the agent chose, or HOLD."""
    return take_answer(cluster, QUEUEING, NO_REQUEST, memory)


@scaling_policy(source=SOURCE, name=AGENT, memory=2)
def scaling(cluster, params, memory, rng):
    """Return -1, 0 or 1, as the agent chose."""
    answer = take_answer(cluster, SCALING, NO_REQUEST, memory)
    return 0 if cluster.shared[0].error == ASKED else answer


@migration_policy(
    source=SOURCE,
    name=AGENT,
    params=(Param("rule", N_TIER, "0 n-tier, 1 llumnix", 0, 1, is_whole=True),),
    memory=lambda config: PAIRS + 2 * config.most_instances,
)
def migration(cluster, moves, params, memory, rng):
    """Return the number of moves written for the pairs that the agent chose."""
    if memory[IS_ANSWERED] == 0:
        return max(0, take_answer(cluster, MIGRATION, NO_REQUEST, memory))
    n = 0
    for pair in range(int(memory[N_PAIRS])):
        source, destination = int(memory[PAIRS + 2 * pair]), int(memory[PAIRS + 2 * pair + 1])
        if params[0] == N_TIER and is_draining(cluster, source):
            n = move_all(cluster, source, destination, moves, n)
        else:
            r = chosen_request(cluster, source, destination, params[0])
            if r != NOBODY:
                n = write_move(moves, n, source, destination, r)
    memory[IS_ANSWERED] = memory[N_PAIRS] = 0
    return n


@kernel
def chosen_request(cluster, source, destination, rule):
    """Return the request that moves from source to destination, NOBODY if none may."""
    if rule == LLUMNIX:
        k = victim(cluster, source, 0)
        return NOBODY if k == NOBODY else running_request(cluster, source, k).index
    r, _ = least_urgent(cluster, source, destination)
    return r
