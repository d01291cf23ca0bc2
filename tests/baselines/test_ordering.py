"""Ordering policies by hand, and what must hold for every one that ships."""

import numpy as np
import pytest
from flat_profile import FLAT, one_server

from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy, policy_names
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED, Request
from servegym.traces import Trace

ORDERS = [
    name
    for name in policy_names("ordering")
    if find_policy("ordering", name).function.__module__.startswith("servegym.")
]
ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
MS = 10**9


def run(trace: Trace, config: ClusterConfig) -> Simulation:
    """Run to the end."""
    simulation = Simulation(trace, config, find_policy("dispatch", "round-robin"))
    simulation.run()
    return simulation


def order_served(trace: Trace, **options) -> list[int]:
    """Return the requests in the order in which one server of one seat finished them."""
    records = run(trace, one_server(**options)).state.requests
    return np.argsort(records["finish_ps"]).tolist()


# SJF.


def test_sjf_serves_the_fewest_prompt_and_output_tokens_first():
    # the first is served at once; the others have 30 + 5, 10 + 10 and 20 + 2 tokens
    trace = Trace([0.0, 0.001, 0.002, 0.003], [8, 30, 10, 20], [1, 5, 10, 2])
    assert order_served(trace, order="sjf", estimator="oracle") == [0, 2, 3, 1]


def test_sjf_goes_by_predictions_not_by_the_truth():
    # the same 5 tokens predicted for all: 35, 15 and 25
    trace = Trace([0.0, 0.001, 0.002, 0.003], [8, 30, 10, 20], [1, 1, 50, 2])
    assert order_served(trace, order="sjf", estimator_params={"tokens": 5.0}) == [0, 2, 3, 1]


def test_sjf_breaks_ties_by_arrival():
    trace = Trace([0.0, 0.001, 0.002, 0.002], [8, 10, 10, 10], [1, 2, 2, 2])
    assert order_served(trace, order="sjf") == [0, 1, 2, 3]


def test_sjf_makes_a_long_request_wait_for_every_shorter_one():
    # one second of short ones of 10 ms, one each 10 ms; the long one came second
    n = 100
    arrival_s = np.sort(np.append(np.arange(n) * 0.010, 0.001))
    prompt = np.full(n + 1, 5)
    prompt[1] = 50
    trace = Trace(arrival_s, prompt, np.ones(n + 1))
    assert order_served(trace, order="sjf")[-1] == 1
    assert order_served(trace, order="fcfs")[1] == 1


# Every ordering policy.


@pytest.mark.parametrize("name", ORDERS)
def test_key_is_a_number_and_the_same_for_the_same_question(name):
    policy = find_policy("ordering", name)
    trace = Trace(np.arange(50.0), np.arange(1, 51), np.arange(1, 51))
    records = run(trace, ClusterConfig(profile=FLAT)).state.requests
    params = policy.param_values({}, trace)
    for r in range(50):
        request = Request(records, np.int64(r))
        key = policy(request, 10**12, params)
        assert np.isfinite(key) and key == policy(request, 10**12, params)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ORDERS)
def test_every_order_serves_everybody_on_starved_kv(name, engine):
    random = np.random.default_rng(0)
    prompt, output = random.integers(1, 60, 60), random.integers(1, 40, 60)
    trace = Trace(np.sort(random.uniform(0, 0.3, 60)), prompt, output)
    config = ClusterConfig(instances=1, profile=FLAT, engine=engine, order=name, kv_blocks=12)
    records = run(trace, config).state.requests
    assert (records["status"] == FINISHED).all()


@pytest.mark.parametrize("name", ORDERS)
def test_every_order_is_first_come_first_served_for_equals_that_never_wait_together(name):
    trace = Trace(np.arange(20.0), np.full(20, 10), np.full(20, 3))
    fcfs = run(trace, one_server()).state.requests
    np.testing.assert_array_equal(
        run(trace, one_server(order=name)).state.requests["finish_ps"], fcfs["finish_ps"]
    )
