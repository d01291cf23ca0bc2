"""Guards around each policy's parameters and memory: writing or reading beyond them shows.

An index beyond an array is not checked in compiled code: it reaches what lies beside. So there is put a gap of known
values: whoever writes there changes them, and whoever reads there decides otherwise when they are others.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from servegym.simulator.build import link_state
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import ROLES

GAP = 128  # values on either side
FILLS = (3.0, -7.0e15)
NO_STREAM = np.uint64(77)


@dataclass(frozen=True, eq=False)
class Guard:
    """What stands beside the parameters or the memory of all roles: name is `params` or `memory` of the state."""

    name: str
    fill: float
    is_gap: NDArray[np.bool_]

    def check(self, simulation: Simulation) -> None:
        """AssertionError if anything between the roles' parts has been written."""
        values = getattr(simulation.state, self.name)
        written = np.flatnonzero(self.is_gap & (values != self.fill))
        if len(written):
            role, offset = _nearest(simulation, self.name, int(written[0]))
            raise AssertionError(
                f"{self.name}[{offset}] of the {role} policy is written: it has no such index"
            )


def put_guards(simulation: Simulation, fill: float = FILLS[0]) -> list[Guard]:
    """Move params and memory of a fresh simulation apart, with gaps of `fill` (mutates its state)."""
    state = simulation.state
    beyond = np.full(GAP, NO_STREAM, np.uint64)  # behind the random stream of the last role
    simulation.state = state._replace(streams=np.concatenate([state.streams, beyond]))
    guards = [_put_guard(simulation, name, fill) for name in ("params", "memory")]
    link_state(simulation.state)
    return guards


def within_guards(values: np.ndarray, fill: float = FILLS[0]) -> tuple[np.ndarray, np.ndarray]:
    """Return a copy of the values that lies between gaps, and all of it."""
    fill = values.dtype.type(abs(fill))
    whole = np.full(len(values) + 2 * GAP, fill, values.dtype)
    whole[GAP : GAP + len(values)] = values
    return whole[GAP : GAP + len(values)], whole


def _put_guard(simulation: Simulation, name: str, fill: float) -> Guard:
    state = simulation.state
    old, policies = getattr(state, name), state.policies
    spread = np.full(len(old) + GAP * (len(ROLES) + 1), fill)
    is_gap = np.ones(len(spread), np.bool_)
    for k in range(len(ROLES)):
        begin, end = int(policies[k][f"{name}_begin"]), int(policies[k][f"{name}_end"])
        shift = GAP * (k + 1)
        spread[begin + shift : end + shift] = old[begin:end]
        is_gap[begin + shift : end + shift] = False
        policies[k][f"{name}_begin"], policies[k][f"{name}_end"] = begin + shift, end + shift
    simulation.state = state._replace(**{name: spread})
    return Guard(name, fill, is_gap)


def _nearest(simulation: Simulation, name: str, place: int) -> tuple[str, int]:
    """Return the role that decides, and is nearest to a place in its array, and the index as that policy counts."""
    offsets = {
        role: (
            place - int(record[f"{name}_begin"]),
            max(int(record[f"{name}_begin"]) - place, place - int(record[f"{name}_end"])),
        )
        for role, record in zip(ROLES, simulation.state.policies, strict=True)
        if simulation.decider(role)[0] is not None
    }
    role = min(offsets, key=lambda each: offsets[each][1])
    return role, offsets[role][0]
