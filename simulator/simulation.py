"""A run in Python's hands: build the state, step it, look at it, copy it.

    simulation = Simulation(trace, config, dispatch=policy, seed=0)
    simulation.run(until_s=60); simulation.observe(0); simulation.run(); simulation.result()

State is arrays, so snapshot/restore/copy.deepcopy/pickle give identical, independent futures. Addresses of compiled
policies belong to a process: a pickle stores the policies' names and resolves them again.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from servegym.simulator import state as layout
from servegym.simulator.build import (
    Blank,
    blank_of,
    build_state,
    link_state,
    pack,
    records,
    restart_state,
    set_addresses,
    with_copies,
)
from servegym.simulator.config import DECISIONS, ClusterConfig
from servegym.simulator.entries import play_address
from servegym.simulator.errors import raise_engine_error
from servegym.simulator.links import measure, proceed
from servegym.simulator.policy import Policy
from servegym.simulator.seconds import PS_PER_S, to_ps
from servegym.simulator.slo import Slo
from servegym.traces import Trace

if TYPE_CHECKING:
    from servegym.simulator.result import Result


class Simulation:
    """One cluster serving one trace, paused between events.

    `dispatch` is a Policy; `dispatch_params` sets its parameters by name. With `horizon_s` requests that arrive at
    or after it are not offered and nothing happens after it. asks_what_if: whether somebody may ask what would happen
    (the dispatch policy says so by itself). keeps_outlook: whether somebody else than its policies reads
    outlook_views.py, so that refreshes of stale metrics store those values, too. tally_slo: keep what accrues for
    rewards, under that SLO (tally.py).
    """

    _blank: Blank | None = None  # what restart plays in again

    def __init__(
        self,
        trace: Trace,
        config: ClusterConfig,
        dispatch: Policy,
        *,
        dispatch_params: Mapping[str, float] | None = None,
        seed: int = 0,
        horizon_s: float | None = None,
        asks_what_if: bool = False,
        keeps_outlook: bool = False,
        tally_slo: Slo | None = None,
    ) -> None:
        self.asks_what_if = asks_what_if or dispatch.uses_what_if
        self.trace = trace
        self.config = config
        self.dispatch = dispatch
        self.dispatch_params = dict(dispatch_params or {})
        self.seed = seed
        self.horizon_s = horizon_s
        self.horizon_ps = None if horizon_s is None else to_ps(horizon_s, "horizon_s")
        self.keeps_outlook = keeps_outlook
        self.tally_slo = tally_slo
        self.order = config.policy_of("ordering")
        self.state = build_state(self)

    def decider(self, role: str) -> tuple[Policy | None, Mapping[str, float]]:
        """Return who takes a decision of state.ROLES, None for nobody, and the parameters that are set."""
        if role == "dispatch":
            return self.dispatch, self.dispatch_params
        return self.config.policy_of(role), getattr(self.config, f"{DECISIONS[role]}_params")

    def restart(self, trace: Trace, seed: int = 0) -> None:
        """Begin again with another trace and seed: the state of a new Simulation, everything else as before.

        From the second time on in the same arrays, if as many requests are offered. ValueError for a trace that the
        config cannot take; the run is then as it was.
        """
        before = self.trace, self.seed
        self.trace, self.seed = trace, seed
        try:
            self._blank = restart_state(self, self._blank)
        except Exception:
            self.trace, self.seed = before
            raise
        play_address_before = self.state.shared[0]["play_address"]
        self.state = self._blank.state
        self.state.shared[0]["play_address"] = play_address_before

    def pack(self, memory: np.ndarray) -> None:
        """Move a fresh state into memory, uint8[packed_size or more], to be played and restarted there."""
        self.state = pack(self.state, memory)
        link_state(self.state)
        self._blank = blank_of(self.state)

    @property
    def now_s(self) -> float:
        """The instant up to which everything has happened."""
        return int(self.state.shared[0]["now_ps"]) / PS_PER_S

    def run(self, until_s: float | None = None) -> None:
        """Run to the end, the horizon or until_s: iteration ends and arrivals at that instant included.

        Raises NoProgressError, or ValueError naming the policy that returned a bad instance.
        """
        limit = int(layout.NEVER) if self.horizon_ps is None else self.horizon_ps
        self.run_until_ps(limit if until_s is None else min(to_ps(until_s, "until_s"), limit))

    def run_until_ps(self, until_ps: int) -> None:
        """Run to an instant given in picoseconds; ValueError if it lies in the past."""
        present_ps = int(self.state.shared[0]["now_ps"])
        if until_ps < present_ps:
            raise ValueError(f"until = {until_ps} ps; must be >= {present_ps}, the present")
        if self.proceed(until_ps):
            role = layout.ROLES[self.state.shared[0]["asked_role"]]
            raise ValueError(f"{role} = 'agent'; its decisions are an environment's to take")

    def proceed(self, until_ps: int) -> bool:
        """Run to an instant, ps, or to the first decision of an agent before it; return whether one waits.

        Called again it goes on with the answer that the agent's memory holds (envs/agent.py).
        """
        while True:
            shared = self.state.shared[0]
            code = proceed(shared["run_address"], shared["state_pointer"], until_ps)
            if code in (layout.OK, layout.ASKED):
                return code == layout.ASKED
            self.provide(code)

    def provide(self, code: int) -> None:
        """See to what stopped the engine, so that it can go on; raises what is an error."""
        if code == layout.LEDGER_FULL:
            self._grow_ledger()
        elif code == layout.NEEDS_INSTANTS:
            self.state.shared[0]["play_address"] = play_address()
        else:
            raise_engine_error(self)

    def _grow_ledger(self) -> None:
        """Make room for as many moves again: kernels cannot."""
        old = self.state.ledger
        room = 2 * len(old) + len(self.state.ordered) + len(self.state.moves)
        ledger = records(room, layout.LEDGER)
        ledger[: len(old)] = old
        self.state = self.state._replace(ledger=ledger)
        self.state.shared[0]["error"] = layout.OK
        link_state(self.state)

    def allow_what_if(self) -> None:
        """Let somebody beside the dispatch policy ask what would happen from now on."""
        if not self.asks_what_if:
            self.asks_what_if = True
            self.state = with_copies(self)
            self._blank = None

    def observe(self, i: int) -> dict[str, int]:
        """Return the true counts of instance i at the present instant."""
        if not 0 <= i < len(self.state.instances):
            raise ValueError(f"instance = {i}; must be in 0 .. {len(self.state.instances) - 1}")
        shared = self.state.shared[0]
        measure(shared["catch_up_address"], shared["state_pointer"], i, shared["now_ps"])
        instance = self.state.instances[i]
        kv_blocks = self.state.engines[instance["engine"]]["kv_blocks"]
        return {
            "n_waiting": int(instance["n_waiting"]),
            "n_running": int(instance["n_running"]),
            "used_blocks": int(kv_blocks - instance["free_blocks"]),
            "waiting_blocks": int(instance["waiting_blocks"]),
            "held_tokens": int(instance["held_tokens"]),
        }

    def result(self) -> "Result":
        """Return what the requests that have arrived got up to the present, as a copy."""
        from servegym.simulator.result import result_of

        return result_of(self)

    def snapshot(self) -> layout.State:
        """Return a copy of the whole state."""
        return layout.State(*(array.copy() for array in self.state))

    def restore(self, snapshot: layout.State) -> None:
        """Go back to a snapshot of this simulation (or of one with the same trace and config)."""
        room = max(len(self.state.ledger), len(snapshot.ledger))
        self.state, snapshot = (_with_room(each, room) for each in (self.state, snapshot))
        for name, mine, other in zip(layout.State._fields, self.state, snapshot, strict=True):
            if mine.shape != other.shape or mine.dtype != other.dtype:
                raise ValueError(f"snapshot: {name} has shape {other.shape}, expected {mine.shape}")
        for mine, other in zip(self.state, snapshot, strict=True):
            mine[...] = other
        set_addresses(self.state, self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Simulation":
        twin = object.__new__(type(self))
        twin.__dict__ |= self.__dict__ | {"_blank": None}  # it restarts in arrays of its own
        twin.state = self.snapshot()
        link_state(twin.state)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        attributes = dict(self.__dict__)
        attributes["state"] = tuple(np.asarray(array) for array in self.state)
        attributes.pop("_blank", None)  # a copy plays in arrays of its own
        return attributes

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        self.__dict__.update(attributes)
        self.state = layout.State(*attributes["state"])
        set_addresses(self.state, self)


def _with_room(state: layout.State, room: int) -> layout.State:
    """Return the state with a ledger of that room; the moves in it are kept."""
    if len(state.ledger) == room:
        return state
    ledger = records(room, layout.LEDGER)
    ledger[: len(state.ledger)] = state.ledger
    return state._replace(ledger=ledger)
