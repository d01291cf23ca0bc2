"""A policy reads the cluster and writes only its own memory; the same question gets the same answer.

The simulation is paused and brought up to date first, since looking at an instance advances it. After that a question
may change nothing but what what-if plays with, and what an outlook keeps to be quicker next time. Not seen: a value
that is written over and over, except the first time.
"""

import copy
import math

import numpy as np

from servegym.simulator.simulation import Simulation
from servegym.simulator.state import ROLES, UNFINISHED, State
from servegym.simulator.views import ACCEPT, HOLD, REJECT
from servegym.testing.asking import BEYOND, NOT_ASKED, UNTOUCHED, Answer, ask, bring_up_to_date
from servegym.testing.clusters import Case
from servegym.testing.replays import fresh, stops

N_PAUSES = 6
ROOMS = (1, 64)  # rows of moves that a migration policy is given
ADDRESSES = ("state_pointer", "centre_pointer", "copies_pointer", "router")


def check_reads_only(case: Case) -> None:
    """Asked twice at a standstill it answers the same, legally, and writes nothing but its memory."""
    simulation, _ = fresh(case)
    for instant in [None, *stops(case, N_PAUSES)]:
        if (
            instant is not None
        ):  # before the first event nothing has been written yet, not even over and over
            simulation.run_until_ps(instant)
        r = _whom_to_ask_about(simulation, case.policy.kind)
        if r is not None:
            _check_question(case, copy.deepcopy(simulation), r)


def _check_question(case: Case, simulation: Simulation, r: int) -> None:
    """Ask about request r (changes the simulation: a copy)."""
    if simulation.state.requests[r]["predicted_tokens"] == 0:  # it has not arrived
        simulation.state.requests[r]["predicted_tokens"] = 20
    for i in range(len(simulation.state.instances)):
        simulation.observe(i)
    bring_up_to_date(simulation.state, r)
    before = simulation.snapshot()
    for room in ROOMS if case.policy.kind == "migration" else ROOMS[-1:]:
        first = ask(simulation, case.policy, r, room)
        _check_untouched(before, simulation.state)
        if first.value == NOT_ASKED:
            return
        _check_legal(case.policy.kind, first, simulation, room)
        second = ask(simulation, case.policy, r, room)
        for name in ("value", "moves", "memory", "rng"):
            pair = getattr(first, name), getattr(second, name)
            assert np.array_equal(*pair, equal_nan=name in ("value", "memory")), (
                f"asked the same twice, its {name} differs: {pair[0]} and {pair[1]}; it keeps state beside memory"
            )


def _whom_to_ask_about(simulation: Simulation, kind: str) -> int | None:
    """Return a request that the policy may be asked about now, None if there is none."""
    state = simulation.state
    arrived = int(state.shared[0]["next_arrival"])
    queues = state.queues[:-1]
    if kind == "queue":
        heads = queues["head"][queues["n_waiting"] > 0]
        return int(heads[0]) if len(heads) else None
    if kind == "ordering" and arrived == 0:
        return 0
    if kind in ("ordering", "remaining"):
        alive = np.flatnonzero(state.requests["status"][:arrived] == UNFINISHED)
        return int(alive[0]) if len(alive) else None
    if kind in ("migration", "scaling"):
        return 0
    return arrived if arrived < len(state.requests) else None


def _check_untouched(before: State, after: State) -> None:
    """AssertionError for anything of the engine's state that a question has changed."""
    for name, old, new in zip(State._fields, before, after, strict=True):
        if name.startswith("copied_") or old.dtype.names is None:
            is_same = name.startswith("copied_") or np.array_equal(old, new, equal_nan=True)
            assert is_same, f"it writes into the engine's {name}"
            continue
        for field in old.dtype.names:
            is_kept = name == "outlooks" and not field.startswith("seen_")  # between two looks
            if field in ADDRESSES or is_kept:
                continue
            assert np.array_equal(old[field], new[field]), (
                f"it writes into the engine's {name}[...].{field}"
            )


def _check_legal(kind: str, answer: Answer, simulation: Simulation, room: int) -> None:
    """AssertionError for an answer that its kind has not, or parameters that it has written."""
    value, m = answer.value, len(simulation.state.instances)
    if kind == "dispatch":
        assert value == HOLD or 0 <= value < m, f"answers {value:g}; must be HOLD or 0 .. {m - 1}"
    elif kind == "admission":
        known = (ACCEPT, HOLD, REJECT)
        assert value in known, f"answers {value:g}; must be ACCEPT, HOLD or REJECT {known}"
    elif kind == "queue":
        n = len(simulation.state.queues) - 1
        assert value == HOLD or 0 <= value < n, f"answers {value:g}; must be HOLD or 0 .. {n - 1}"
    elif kind == "scaling":
        assert value in (-1, 0, 1), f"answers {value:g}; must be -1, 0 or +1"
    elif kind == "migration":
        assert 0 <= value <= room, f"wrote {value:g} moves; has room for {room}"
        beyond = answer.moves[room : room + BEYOND]
        assert (beyond == UNTOUCHED).all(), f"writes moves beyond the {room} that it has room for"
    elif kind == "estimation":
        assert 1 <= value <= 2**30, f"predicts {value:g} tokens; must be in 1 .. 2**30"
    else:
        assert not math.isnan(value), "answers NaN"
    record = simulation.state.policies[ROLES.index(kind)]
    given = simulation.state.params[int(record["params_begin"]) : int(record["params_end"])]
    assert np.array_equal(given, answer.params), "parameters are written; they may only be read"
