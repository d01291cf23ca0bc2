"""One case played several times: to the end in pieces, again at once, from copies, and between guards."""

import copy
import pickle

import numpy as np

from servegym.simulator.seconds import to_ps
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import ROLES, UNFINISHED
from servegym.testing.clusters import Case
from servegym.testing.conservation import check_blocks, check_conservation, check_drained
from servegym.testing.guards import FILLS, Guard, put_guards

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


def fresh(case: Case, fill: float = FILLS[0]) -> tuple[Simulation, list[Guard]]:
    """Return the case before its first event, and the guards in it: a policy that spills must not crash Python."""
    simulation = case.simulation()
    return simulation, put_guards(simulation, fill)


def check_runs(case: Case) -> None:
    """Every answer is legal, everybody ends, no request or KV block is lost, params and memory are kept to."""
    played_in_pieces(case)


def played_in_pieces(case: Case) -> Simulation:
    """Return the case at its end, checked at its stops."""
    simulation, guards = fresh(case)
    given = simulation.state.params.copy()
    for instant in stops(case):
        simulation.run_until_ps(instant)
        check_conservation(simulation)
        check_blocks(simulation)
    simulation.run()
    for guard in guards:
        guard.check(simulation)
    is_written = simulation.state.params != given
    assert not is_written.any(), "parameters are written; they may only be read"
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
    in_pieces, (at_once, _) = played_in_pieces(case), fresh(case)
    at_once.run()
    check_equal(in_pieces, at_once, "played in pieces and at once")


def check_copies(case: Case) -> None:
    """A snapshot, a deep copy and a pickle have the same future as the run itself."""
    simulation, _ = fresh(case)
    simulation.run_until_ps(stops(case)[N_STOPS // 2])
    present = simulation.snapshot()
    twins = {"a deep copy": copy.deepcopy(simulation)}
    twins["a pickle"] = pickle.loads(pickle.dumps(simulation))
    simulation.run()
    restored, _ = fresh(case)
    restored.restore(present)
    for name, twin in {**twins, "a restored snapshot": restored}.items():
        twin.run()
        check_equal(simulation, twin, f"the run and {name}")


def check_own_arrays(case: Case) -> None:
    """What lies beside its parameters, its memory and its random stream plays no part."""
    runs = []
    for fill in FILLS:
        simulation, _ = fresh(case, fill)
        streams = simulation.state.streams.copy()
        simulation.run()
        roles = [*ROLES, "nobody"]
        for role, before, after in zip(roles, streams, simulation.state.streams, strict=False):
            is_used = role in ROLES and simulation.decider(role)[0] is not None
            assert is_used or before == after, (
                f"rng is written beyond its one item: the random stream of {role}, which nobody uses, changed"
            )
        runs.append(simulation)
    beyond = "with other values beside its parameters and memory (it reads beyond them)"
    check_equal(runs[0], runs[1], beyond)


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
        for record, stream in zip(state.policies, state.streams, strict=False)
    ]
