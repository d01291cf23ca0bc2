"""A restarted Simulation is a new one, bit for bit, whatever it had played before."""

import copy
import pickle
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from random_cases import random_case
from random_cases import simulation_of as simulation_of_instances
from random_cluster_cases import KINDS, ClusterCase, random_cluster_case, simulation_of

from servegym.simulator import build
from servegym.simulator.config import ClusterConfig
from servegym.simulator.errors import NoProgressError
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import State
from servegym.traces import Labels, Trace, generate

ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
OF_A_PROCESS = ("pointer", "address")  # endings of fields that say where something lies
LIES_AT = ("links",)  # arrays that do nothing else


def assert_same(mine: Simulation, other: Simulation) -> None:
    """Assert that two runs of one trace object are in equal states."""
    assert (mine.trace, mine.seed) == (other.trace, other.seed)
    assert_same_state(mine.state, other.state)


def assert_same_state(mine: State, other: State) -> None:
    """Assert that two states are equal, bit for bit, but for addresses."""
    for name, a, b in zip(State._fields, mine, other, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name
        if name in LIES_AT:
            continue
        a, b = np.array(a), np.array(b)
        for field in a.dtype.names or ():
            if field.endswith(OF_A_PROCESS):
                a[field] = b[field] = 0
        assert a.tobytes() == b.tobytes(), name


def played(simulation: Simulation) -> Simulation:
    """Return the simulation, run until it ends or can go no further."""
    with suppress(NoProgressError):
        simulation.run()
    return simulation


def other_trace(trace: Trace, seed: int, n: int) -> Trace:
    """Return n requests like those of a trace: other lengths, tiers and tenants, other gaps."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(len(trace), size=n)
    gaps = np.diff(trace.arrival_s, prepend=0.0)[rng.integers(len(trace), size=n)]
    tenant = None
    if trace.tenant is not None:
        tenant = Labels(trace.tenant.names, trace.tenant.codes[rows])
    lengths = trace.prompt_tokens[rows], trace.output_tokens[rows]
    return Trace(np.cumsum(gaps), *lengths, tier=trace.tier[rows], tenant=tenant)


def check_restarts(simulation: Simulation) -> None:
    """Play, and restart with as many requests, as many again, and fewer; each is a new run to its end."""
    first = simulation.trace
    played(simulation)
    for round_, n in enumerate((len(first), len(first), len(first), max(1, len(first) // 2))):
        trace, seed = other_trace(first, round_, n), 5 + round_
        simulation.restart(trace, seed)
        new = Simulation(
            trace,
            simulation.config,
            simulation.dispatch,
            dispatch_params=simulation.dispatch_params,
            seed=seed,
            horizon_s=simulation.horizon_s,
        )
        assert_same(simulation, new)
        assert_same(played(simulation), played(new))


@pytest.mark.parametrize("kind", KINDS)
def test_restarted_cluster_is_a_new_one(kind):
    for seed in range(12):
        check_restarts(simulation_of(random_cluster_case(kind, seed)))


@pytest.mark.parametrize("engine", ENGINES)
def test_restarted_instances_are_new_ones(engine):
    for seed in range(12):
        check_restarts(simulation_of_instances(random_case(engine, seed)))


@pytest.mark.parametrize("dispatch", ["test-soonest", "test-marginal"])
@pytest.mark.parametrize("snapshot_interval_s", [0.0, 0.02])
def test_restarted_what_if_has_forgotten_its_copies(dispatch, snapshot_interval_s):
    for seed in range(4):
        case = random_cluster_case("gateway-push-limit", seed)
        options = case.config.model_dump() | {"snapshot_interval_s": snapshot_interval_s}
        options |= {"metrics_interval_s": 0.0, "routers": 1}
        check_restarts(
            simulation_of(replace(case, dispatch=dispatch, config=ClusterConfig(**options)))
        )


def restarted(case: ClusterCase) -> Simulation:
    """Return a run of that case that has been restarted twice, so that it plays in arrays used before."""
    simulation = played(simulation_of(case))
    simulation.restart(case.trace, 1)
    played(simulation).restart(case.trace, 2)
    return simulation


def test_arrays_are_used_again_from_the_second_restart_on():
    case = random_cluster_case("everything", 1)
    simulation = restarted(case)
    before = [id(array) for array in simulation.state]
    simulation.restart(other_trace(case.trace, 0, len(case.trace)), 3)
    assert [id(array) for array in simulation.state] == before
    simulation.restart(other_trace(case.trace, 0, len(case.trace) + 1), 3)
    assert len(simulation.state.requests) == len(case.trace) + 1


def test_defaults_that_follow_from_the_trace_are_those_of_the_new_trace():
    """The constant estimator predicts the mean: 10 tokens, then 30."""
    config = ClusterConfig(instances=1)
    dispatch = find_policy("dispatch", "round-robin")
    simulation = Simulation(Trace([0.0, 1.0], [5, 5], [5, 15]), config, dispatch)
    for mean in (30, 50):
        simulation.restart(Trace([0.0, 1.0], [5, 5], [mean - 5, mean + 5]))
        simulation.run()
        assert simulation.state.requests["predicted_tokens"].tolist() == [mean, mean]


def test_gateway_queues_by_tenant_only_a_trace_that_has_some():
    """One tenant has one queue, as none has: the arrays fit, the gateway's flag does not."""
    config = ClusterConfig(instances=1, queue_by="tenant", max_local_waiting=0)
    dispatch = find_policy("dispatch", "round-robin")
    times, lengths = [0.0, 0.0], [5, 5]
    plain = Trace(times, lengths, lengths)
    owned = Trace(times, lengths, lengths, tenant=Labels(("a",), [0, 0]))
    simulation = Simulation(plain, config, dispatch)
    for trace in (plain, owned, plain):
        simulation.restart(trace)
        assert_same(simulation, Simulation(trace, config, dispatch))


def test_trace_that_the_config_cannot_take_leaves_the_run_as_it_was():
    case = random_cluster_case("gateway-pull", 2)
    simulation, twin = restarted(case), restarted(case)
    for each in (simulation, twin):
        each.run(float(case.trace.arrival_s[-1]) / 2)
    bad = Trace([0.0], [1], [1], tier=[case.config.tiers])
    with pytest.raises(ValueError, match=r"tier\[0\] = 4; must be < tiers = 4"):
        simulation.restart(bad)
    with pytest.raises(ValueError, match="seed = -1"):
        simulation.restart(case.trace, -1)
    twin.trace = simulation.trace  # the same object, as before
    assert_same(simulation, twin)
    assert_same(played(simulation), played(twin))


def test_ledger_that_grew_is_as_small_again(monkeypatch):
    monkeypatch.setattr(build, "FIRST_LEDGER", 1)
    runs = [played(restarted(random_cluster_case("migration", seed))) for seed in range(6)]
    grown = [simulation for simulation in runs if len(simulation.state.ledger) > 1]
    assert grown
    for simulation in grown:
        check_restarts(simulation)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_restart_on_their_own(copied):
    case = random_cluster_case("everything", 3)
    simulation = restarted(case)
    simulation.run(float(case.trace.arrival_s[-1]) / 2)
    present = simulation.snapshot()
    twin = copied(simulation)
    check_restarts(twin)
    assert_same_state(simulation.state, present)
    simulation.restore(present)
    check_restarts(simulation)


def test_restart_of_a_long_episode_is_the_run_of_simulate():
    """2,000 Azure conversations on 4 instances, as an environment plays them."""
    config = ClusterConfig(instances=4)
    dispatch = find_policy("dispatch", "power-of-two")
    traces = [generate("azure-conv", 2000, 8.0, seed) for seed in range(3)]
    simulation = Simulation(traces[0], config, dispatch, horizon_s=600)
    for seed, trace in enumerate(traces):
        simulation.restart(trace, seed)
        simulation.run()
        new = Simulation(trace, config, dispatch, seed=seed, horizon_s=600)
        new.run()
        assert_same(simulation, new)
        assert (simulation.state.requests["finish_ps"] > 0).all()
