"""What must come out the same whatever the policy decides: where a difference can only be a bug.

Nobody knows the true outputs before the first token: with all arrivals at once and the outputs dealt otherwise, the
first decisions are the same. One instance leaves a router nothing to choose, one queue a queue policy nothing.
"""

from collections.abc import Callable

import numpy as np

from servegym.simulator.config import DECISIONS, ClusterConfig
from servegym.simulator.policy import Policy, find_policy
from servegym.simulator.simulation import Simulation
from servegym.testing.clusters import ENGINES
from servegym.traces import Trace

N_REQUESTS = 60
KNOWN_AT_ARRIVAL = ("instance", "status", "predicted_tokens", "key", "place")
MORE_INSTANCES = {"scaling": {"max_instances": 6}, "queue": {"max_local_waiting": 0}}


def some_trace(arrival_s: np.ndarray, is_reversed: bool = False) -> Trace:
    """Return requests of three tiers at those times; reversed: the same outputs, dealt from the other end."""
    rng, n = np.random.default_rng(7), len(arrival_s)
    prompt = rng.integers(1, 800, n).astype(np.int32)
    output = rng.integers(1, 150, n).astype(np.int32)
    tier = (np.arange(n) % 3).astype(np.int16)
    return Trace(arrival_s, prompt, output[::-1].copy() if is_reversed else output, tier=tier)


def simulation_of(policy: Policy | None, trace: Trace, **options: object) -> Simulation:
    """Return a simulation with the policy in its place, or with nobody there."""
    dispatch = find_policy("dispatch", "least-requests")
    if policy is not None and policy.kind == "dispatch":
        dispatch = policy
    elif policy is not None:
        options = {**options, DECISIONS[policy.kind]: policy.name}
        if policy.kind == "remaining":
            dispatch = find_policy("dispatch", "marginal")
    config = ClusterConfig(
        **{"instances": 3, "tiers": 3, "max_num_batched_tokens": 4096, **options}
    )
    return Simulation(trace, config, dispatch)


def check_truth_is_unknown(policy: Policy) -> None:
    """Requests that arrive together are treated the same when their true outputs are exchanged."""
    if policy.is_oracle:
        return
    for engine in ENGINES:
        options = {"engine": engine, **MORE_INSTANCES.get(policy.kind, {})}
        runs = [
            simulation_of(policy, some_trace(np.zeros(N_REQUESTS), is_reversed), **options)
            for is_reversed in (False, True)
        ]
        for simulation in runs:
            simulation.run(0.0)
        for name in KNOWN_AT_ARRIVAL:
            first, second = (simulation.state.requests[name] for simulation in runs)
            assert np.array_equal(first, second), (
                f"{engine}: with other true outputs, and nothing streamed yet, {name} of requests differs"
            )


def check_single_instance(policy: Policy) -> None:
    """With one instance every router that does not hold gives the log of round-robin."""
    trace = some_trace(np.arange(N_REQUESTS) * 0.05)
    for engine in ENGINES:
        for stale in ({}, {"metrics_interval_s": 0.7, "routers": 3}):
            options = {"instances": 1, "engine": engine, **stale}
            runs = [
                simulation_of(each, trace, **options)
                for each in (policy, find_policy("dispatch", "round-robin"))
            ]
            for simulation in runs:
                simulation.run()
            if runs[0].state.gateway[0]["n_holds"] == 0:
                _check_same_log(
                    runs[0], runs[1], f"{engine}: one instance leaves nothing to choose"
                )


def check_single_queue(policy: Policy) -> None:
    """Over one queue every queue policy that does not hold gives the log of having none."""
    trace = some_trace(np.arange(N_REQUESTS) * 0.02)
    for engine in ENGINES:
        options = {"engine": engine, "queue_by": "none", "max_local_waiting": 0, "max_num_seqs": 4}
        runs = [simulation_of(each, trace, **options) for each in (policy, None)]
        for simulation in runs:
            simulation.run()
        if runs[0].state.gateway[0]["n_holds"] == 0:
            _check_same_log(runs[0], runs[1], f"{engine}: one queue leaves nothing to choose")


def _check_same_log(mine: Simulation, other: Simulation, why: str) -> None:
    for name in ("instance", "admitted_ps", "first_token_ps", "finish_ps"):
        pair = mine.state.requests[name], other.state.requests[name]
        differing = np.flatnonzero(pair[0] != pair[1])
        if len(differing):
            r = int(differing[0])
            raise AssertionError(
                f"{why}, yet request {r} has {name} = {pair[0][r]}, not {pair[1][r]}"
            )


INVARIANCES: dict[str, tuple[Callable[[Policy], None], ...]] = {
    "dispatch": (check_single_instance,),
    "queue": (check_single_queue,),
}
