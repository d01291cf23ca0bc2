"""One case played several times: to the end in pieces, again at once, from copies, and between guards."""

import copy
import pickle

import numpy as np

from servegym.simulator.seconds import to_ps
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import ROLES, UNFINISHED
from servegym.testing.clusters import Case
from servegym.testing.conservation import check_blocks, check_conservation, check_drained
from servegym.testing.guards import FILLS, put_guards

N_STOPS = 8
# What a request got; the rest of a record depends on how far the engine has looked.
GIVEN = ("arrival_ps", "admitted_ps", "first_token_ps", "finish_ps", "predicted_tokens",
         "status", "instance", "preemptions", "migrations", "recomputed_tokens")  # fmt: skip


def stops(case: Case, n: int = N_STOPS) -> list[int]:
    """Return n even instants of the case, ps, from just after its first arrival to a second after its last."""
    first_ps = to_ps(float(case.trace.arrival_s[0]), "arrival_s")
    last_ps = to_ps(float(case.trace.arrival_s[-1]) + 1.0, "arrival_s")
    if case.horizon_s is not None:
        last_ps = min(last_ps, to_ps(case.horizon_s, "horizon_s"))
    first_ps = min(first_ps, last_ps)
    return [first_ps + (last_ps - first_ps) * k // n for k in range(1, n + 1)]


def check_runs(case: Case) -> None:
    """Every answer is legal, everybody ends, and no request or KV block is lost on the way."""
    played_in_pieces(case)


def played_in_pieces(case: Case) -> Simulation:
    """Return the case at its end, checked at its stops."""
    simulation = case.simulation()
    for instant in stops(case):
        simulation.run_until_ps(instant)
        check_conservation(simulation)
        check_blocks(simulation)
    simulation.run()
    check_conservation(simulation)
    if case.horizon_s is None:
        left = int((simulation.state.requests["status"] == UNFINISHED).sum())
        assert not left, f"{left} requests are left unfinished at the end"
        check_drained(simulation)
    n_bad = int(simulation.state.shared[0]["n_bad_predictions"])
    is_judged = case.policy.kind == "estimation" and not case.params  # a bound may be beyond 2**30
    assert n_bad == 0 or not is_judged, (
        f"{n_bad} predictions are no number of tokens, 1 .. 2**30, and were replaced"
    )
    return simulation


def check_same_again(case: Case) -> None:
    """The same seed gives the same run, in pieces or at once."""
    in_pieces, at_once = played_in_pieces(case), case.simulation()
    at_once.run()
    check_equal(in_pieces, at_once, "played in pieces and at once")


def check_copies(case: Case) -> None:
    """A snapshot, a deep copy and a pickle have the same future as the run itself."""
    simulation = case.simulation()
    simulation.run_until_ps(stops(case)[N_STOPS // 2])
    present = simulation.snapshot()
    twins = {"a deep copy": copy.deepcopy(simulation)}
    twins["a pickle"] = pickle.loads(pickle.dumps(simulation))
    simulation.run()
    restored = case.simulation()
    restored.restore(present)
    for name, twin in {**twins, "a restored snapshot": restored}.items():
        twin.run()
        check_equal(simulation, twin, f"the run and {name}")


def check_own_arrays(case: Case) -> None:
    """Parameters are only read, memory beyond its size is not touched, the random stream is its own."""
    runs = []
    for fill in FILLS:
        simulation = case.simulation()
        guards = put_guards(simulation, fill)
        params, streams = simulation.state.params.copy(), simulation.state.streams.copy()
        simulation.run()
        for guard in guards:
            guard.check(simulation)
        written = simulation.state.params != params
        assert not written.any(), "parameters are written; they may only be read"
        for role, before, after in zip(ROLES, streams, simulation.state.streams, strict=True):
            is_used = simulation.decider(role)[0] is not None
            assert is_used or before == after, f"the random stream of {role} is used; nobody decides that"
        runs.append(simulation)
    check_equal(*runs, "with other values beside its parameters and memory (it reads beyond them)")


def check_equal(mine: Simulation, other: Simulation, when: str) -> None:
    """AssertionError unless all requests got the same, and memory and random streams ended the same."""
    for name in GIVEN:
        pair = mine.state.requests[name], other.state.requests[name]
        differing = np.flatnonzero(pair[0] != pair[1])
        if len(differing):
            r = int(differing[0])
            raise AssertionError(
                f"two runs differ, {when}: request {r} has {name} = {pair[0][r]} and {pair[1][r]}"
            )
    for role, mine_ends, other_ends in zip(ROLES, _ends(mine), _ends(other), strict=True):
        same = np.array_equal(*(ends[0] for ends in (mine_ends, other_ends)), equal_nan=True)
        assert same, f"two runs differ, {when}: memory of the {role} policy"
        assert mine_ends[1] == other_ends[1], f"two runs differ, {when}: random stream of {role}"


def _ends(simulation: Simulation) -> list[tuple[np.ndarray, int]]:
    """Return each role's memory and stream."""
    state = simulation.state
    return [
        (state.memory[int(record["memory_begin"]) : int(record["memory_end"])], int(stream))
        for record, stream in zip(state.policies, state.streams, strict=True)
    ]


