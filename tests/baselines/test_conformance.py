"""What every dispatch policy must do. A policy that ships is tested by being there.

FLAT instances have 1,000 blocks and take 10 ms an iteration; SLOW take 20 ms, BIG has more KV.
"""

import numpy as np
import odd_policies
import pytest
from flat_profile import FLAT, SLOW

from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy, policy_names
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED
from servegym.traces import Trace
from servegym.traces.workload import generate

DISPATCH = [
    name
    for name in policy_names("dispatch")
    if find_policy("dispatch", name).function.__module__.startswith("servegym.")
]
FIRST_OF_EQUALS = {"n-tier", "infaas-vllm"}  # published so: ties go to the lowest index
ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
BIG = "a100_sxm/Llama-3.1-8B/tp1"
pytestmark = pytest.mark.parametrize("name", DISPATCH)


def run(name: str, trace: Trace, seed: int = 0, **options) -> Simulation:
    """Run to the end."""
    config = ClusterConfig(**{"instances": 4, "profile": FLAT, **options})
    simulation = Simulation(trace, config, find_policy("dispatch", name), seed=seed)
    simulation.run()
    return simulation


def busy_trace(n: int = 400) -> Trace:
    """Return requests at a rate that keeps a few instances busy, some too long for FLAT."""
    trace = generate("azure-conv", n, 15.0, 3)
    prompt = trace.prompt_tokens.copy()
    prompt[::40] = 20_000
    return Trace(trace.arrival_s, prompt, trace.output_tokens)


MIXED = {"profile": (FLAT, BIG, SLOW), "instances": 7, "max_num_batched_tokens": 25_000}
STALE = {"metrics_interval_s": 0.7, "routers": 3}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", [{}, STALE], ids=["true", "stale"])
def test_choice_is_always_an_instance_that_accepts_the_request(name, options, engine):
    # the engine refuses any other, so everybody ends; the long ones only fit BIG, instances 1 and 4
    records = run(name, busy_trace(), engine=engine, **MIXED, **options).state.requests
    assert (records["status"] == FINISHED).all()
    assert set(records["instance"][records["need_blocks"] > 1000].tolist()) <= {1, 4}
    fast = {0, 1, 3, 4, 6}  # a policy that foresees finishes may leave SLOW alone
    least_used = fast if find_policy("dispatch", name).uses_what_if else set(range(7))
    assert set(records["instance"].tolist()) >= least_used


@pytest.mark.parametrize("options", [{}, STALE], ids=["true", "stale"])
def test_same_seed_same_log(name, options):
    logs = [run(name, busy_trace(), 5, **MIXED, **options).state.requests for _ in range(2)]
    np.testing.assert_array_equal(logs[0], logs[1])


def test_another_seed_matters_only_to_those_that_draw(name):
    logs = [run(name, busy_trace(), seed, **MIXED).state for seed in (5, 6)]
    untouched = Simulation(
        busy_trace(), ClusterConfig(**MIXED), find_policy("dispatch", name), seed=5
    ).state.streams
    draws = bool((logs[0].streams != untouched).any())
    assert draws == bool((logs[0].requests["instance"] != logs[1].requests["instance"]).any())


@pytest.mark.parametrize("engine", ENGINES)
def test_case_08_with_one_instance_every_router_gives_the_same_log(name, engine):
    """Where there is nothing to choose, a difference is a bug in the router or in how it is called."""
    trace = generate("azure-conv", 200, 3.0, 0)
    options = {"instances": 1, "engine": engine, "profile": BIG, "max_num_batched_tokens": 16_384}
    expected = run("round-robin", trace, **options).state.requests
    np.testing.assert_array_equal(run(name, trace, **options).state.requests, expected)
    stale = run(name, trace, **options, **STALE).state.requests
    np.testing.assert_array_equal(stale, expected)


def test_true_lengths_are_not_known_at_arrival(name):
    # all at once, so nothing has happened yet that could tell; the same mean, hence predictions
    trace = generate("azure-conv", 64, 15.0, 3)
    outputs = (trace.output_tokens, trace.output_tokens[::-1])
    logs = [
        run(name, Trace(np.zeros(64), trace.prompt_tokens, o)).state.requests["instance"]
        for o in outputs
    ]
    np.testing.assert_array_equal(logs[0], logs[1])


def test_memory_of_the_estimator_is_left_alone(name):
    # the counter's two floats stand behind the dispatch policy's: calls so far, and 21
    assert find_policy("estimation", "test-counter") is odd_policies.counter
    trace = generate("azure-conv", 100, 15.0, 3)
    state = run(name, trace, estimator="test-counter").state
    assert state.memory[-2:].tolist() == [100.0, 21.0]
    assert np.isfinite(state.memory).all()


def test_identical_idle_instances_are_all_used(name):
    trace = Trace(np.arange(200.0), np.full(200, 10), np.full(200, 2))
    shares = np.bincount(run(name, trace).state.requests["instance"], minlength=4)
    if name in FIRST_OF_EQUALS:
        assert shares.tolist() == [200, 0, 0, 0]
    else:  # chance: 50 +- 6
        assert shares.min() >= 25
