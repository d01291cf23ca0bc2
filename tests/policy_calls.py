"""Asking policies and accessors about a simulation that stands still, as the engine would ask them.

simulation = paused([(0, 0, 100, 50), (1, 2, 16, 50)], until_s=0.015, instances=2)  # instance, tier, prompt, output
Asked(simulation, "dispatch", "n-tier", headroom=0).dispatch()
"""

import numpy as np
from flat_profile import FLAT

from servegym.baselines import freeness as free
from servegym.baselines import headroom
from servegym.simulator.calls import call_dispatch, call_migration, call_scaling
from servegym.simulator.config import ClusterConfig
from servegym.simulator.gateway import view_of
from servegym.simulator.kernel import kernel
from servegym.simulator.links import core_of
from servegym.simulator.policy import dispatch_policy, find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import Request
from servegym.traces import Trace

Row = tuple[int, int, int, int]  # instance, tier, prompt, output
MOST_ROWS = 1000
LATER_S = 1000.0


@dispatch_policy(source="test: where a list says", name="test-as-listed", memory=MOST_ROWS)
def as_listed(cluster, request, params, memory, rng):
    """Return the instance that memory has for the request."""
    return int(memory[request.index])


def paused(rows: list[Row], asker: tuple[int, int] = (0, 16), until_s: float = 0.005, **options):
    """Return FLAT instances (10 ms an iteration) with the rows placed at 0, stopped at until_s.

    asker: tier and prompt of one more request, which has not arrived.
    """
    where = [row[0] for row in rows]
    tiers, prompts, outputs = np.array([row[1:] for row in [*rows, (0, *asker, 1)]]).T
    options = {"instances": 1 + max(where, default=0), "profile": FLAT, "tiers": 4} | options
    arrival_s = np.append(np.zeros(len(rows)), LATER_S)
    trace = Trace(arrival_s, prompts, outputs, tier=tiers)
    simulation = Simulation(trace, ClusterConfig(estimator="oracle", **options), as_listed)
    simulation.state.memory[: len(where)] = where
    simulation.run(until_s)
    return simulation


@kernel
def ask_dispatch(all_state, address, r, params, memory, rng):
    """Return the answer of the dispatch policy at an address about request r."""
    state = core_of(all_state)
    request = Request(state.requests, np.int64(r))
    return call_dispatch(address, view_of(state), request, params, memory, rng)


@kernel
def ask_migration(all_state, address, moves, params, memory, rng):
    """Return the number of moves that a migration policy writes."""
    state = core_of(all_state)
    return call_migration(address, view_of(state), moves, params, memory, rng)


@kernel
def ask_scaling(all_state, address, params, memory, rng):
    """Return a scaling policy's answer."""
    state = core_of(all_state)
    return call_scaling(address, view_of(state), params, memory, rng)


class Asked:
    """One policy with its parameters, memory and random stream, beside a simulation."""

    def __init__(self, simulation: Simulation, kind: str, name: str, **params: float) -> None:
        self.simulation = simulation
        self.policy = find_policy(kind, name)
        self.params = self.policy.param_values(params, simulation.trace)
        self.memory = np.zeros(self.policy.memory_size(simulation.config))
        self.rng = np.array([1], np.uint64)

    def _ask(self, call, *about) -> int:
        state = self.simulation.state
        address = self.policy.address
        return int(call(state, address, *about, self.params, self.memory, self.rng))

    def dispatch(self, r: int | None = None) -> int:
        """Return the instance chosen for request r, the asker unless given."""
        r = len(self.simulation.state.requests) - 1 if r is None else r
        return self._ask(ask_dispatch, r)

    def moves(self, most: int = 64) -> list[tuple[int, int, int]]:
        """Return the moves written: source, destination, request."""
        moves = np.full((most, 3), -9, np.int64)
        n = self._ask(ask_migration, moves)
        assert (moves[n:] == -9).all()
        return [(int(a), int(b), int(c)) for a, b, c in moves[:n]]

    def scale(self) -> int:
        """Return the order: -1, 0 or 1."""
        return self._ask(ask_scaling)


def headroom_values(**changes: float) -> np.ndarray:
    """Return the parameters of headroom, switched on unless said otherwise."""
    return find_policy("dispatch", "n-tier").param_values(changes, None)


@kernel
def look(all_state, given, memory, out):
    """Fill out[i] with F, headroom blocks, and Llumnix's two freenesses of every instance."""
    state = core_of(all_state)
    cluster = view_of(state)
    headroom.prepare_headroom(cluster, given, memory)
    for i in range(state.instances.shape[0]):
        out[i, 0] = free.freeness(cluster, i, memory)
        out[i, 1] = headroom.headroom_blocks(cluster, i, memory)
        out[i, 2] = free.remaining_steps(cluster, i, 0)
        blocks = free.migration_free(cluster, i, 1600, True)
        out[i, 3] = free.per_request(blocks, free.migration_requests(cluster, i))


def seen(simulation, given=None, memory=None) -> np.ndarray:
    """Return what look finds, a row an instance."""
    memory = np.zeros(headroom.headroom_memory(simulation.config)) if memory is None else memory
    out = np.zeros((simulation.config.instances, 4))
    look(simulation.state, headroom_values() if given is None else given, memory, out)
    return out
