"""Ordering policies by hand, and what must hold for every one that ships."""

import numpy as np
import pytest
from flat_profile import FLAT, one_server
from hypothesis import given
from hypothesis import strategies as draw

from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import Param, find_policy, ordering_policy, policy_names
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED, REQUEST, Request
from servegym.simulator.views import arrival_s, tier
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


# Aging.


@ordering_policy(
    source="test: what Aging comes to",
    name="test-static-aging",
    params=(Param("seconds_a_tier", 100.0, "s", 0, 1e6),),
)
def static_aging(request, now_ps, params):
    """Return arrival + 100 s a tier."""
    return arrival_s(request) + params[0] * tier(request)


def test_aging_serves_an_old_batch_request_before_a_new_premium_one():
    # One server, busy up to 300 s. At 300 s: tier 2, 210 s old: 3 - 2.1 = .9; tier 0, 5 s: 1 - .05 = .95;
    # tier 1, 105 s: 2 - 1.05 = .95 by hand, 5 ms later than a tie; tier 2, 190 s: 3 - 1.9 = 1.1
    trace = Trace(
        [0.0, 90.0, 110.0, 195.005, 295.0], np.full(5, 10), [30_000, 1, 1, 1, 1], [0, 2, 2, 1, 0]
    )
    assert order_served(trace, order="aging", tiers=3, kv_blocks=10_000) == [0, 1, 4, 3, 2]


REQUESTS = draw.tuples(draw.floats(0, 1000), draw.integers(0, 9))


@given(REQUESTS, REQUESTS, draw.floats(1000, 2000))
def test_aging_orders_every_pair_as_arrival_plus_100_s_a_tier(first, second, now_s):
    records = np.zeros(2, REQUEST)
    for record, (at_s, tier_of) in zip(records, (first, second), strict=True):
        record["arrival_ps"], record["tier"] = round(at_s * 1e12), tier_of
    records = records.view(np.recarray)
    pair = [Request(records, np.int64(r)) for r in range(2)]
    rate, per_tier = np.array([0.01]), np.array([100.0])
    keys = [find_policy("ordering", "aging")(r, round(now_s * 1e12), rate) for r in pair]
    fixed = [static_aging(r, 0, per_tier) for r in pair]
    if abs(keys[0] - keys[1]) > 1e-9:
        assert (keys[0] < keys[1]) == (fixed[0] < fixed[1])


@pytest.mark.parametrize("engine", ENGINES)
def test_aging_runs_as_arrival_plus_seconds_a_tier(engine):
    # 1 / rate = .2 s a tier, on KV that makes them preempt
    random = np.random.default_rng(1)
    prompt, output = random.integers(1, 60, 80), random.integers(1, 40, 80)
    trace = Trace(np.sort(random.uniform(0, 1, 80)), prompt, output, tier=random.integers(0, 3, 80))
    config = {"instances": 1, "profile": FLAT, "engine": engine, "kv_blocks": 12, "tiers": 3}
    aged = run(trace, ClusterConfig(**config, order="aging", order_params={"rate": 5.0}))
    per_tier = {"seconds_a_tier": 0.2}
    fixed = run(trace, ClusterConfig(**config, order="test-static-aging", order_params=per_tier))
    strict = run(trace, ClusterConfig(**config, order="priority"))
    finish = aged.state.requests["finish_ps"]
    np.testing.assert_array_equal(finish, fixed.state.requests["finish_ps"])
    assert (finish != strict.state.requests["finish_ps"]).any()


# SJF with aging.


def test_sjf_aging_lets_a_long_request_pass_those_that_come_late_enough():
    # Busy up to 1 s. 60 + 1 tokens at 0 s; 10 + 1 tokens at .4 and at .6 s. At 100 tokens/s they count
    # as 61, 51 and 71.
    trace = Trace([0.0, 0.0, 0.4, 0.6], [10, 60, 10, 10], [100, 1, 1, 1])
    assert order_served(trace, order="sjf-aging", estimator_params={"tokens": 1}) == [0, 2, 1, 3]
    assert order_served(trace, order="sjf", estimator_params={"tokens": 1}) == [0, 2, 3, 1]


def test_sjf_aging_at_no_rate_is_sjf():
    random = np.random.default_rng(3)
    trace = Trace(
        np.sort(random.uniform(0, 1, 50)), random.integers(1, 50, 50), random.integers(1, 9, 50)
    )
    options = {"order": "sjf-aging", "order_params": {"rate": 0.0}}
    assert order_served(trace, **options) == order_served(trace, order="sjf")


# EDF.


def test_edf_serves_by_arrival_plus_a_second_a_tier():
    # Busy up to 3 s. Deadlines: tier 2 at .1 s: 3.1; tier 1 at 1 s: 3.0; tier 0 at 2.05 s: 3.05; tier 0 at 2.2 s: 3.2
    trace = Trace([0.0, 0.1, 1.0, 2.05, 2.2], np.full(5, 10), [300, 1, 1, 1, 1], [0, 2, 1, 0, 0])
    assert order_served(trace, order="edf", tiers=3) == [0, 2, 3, 1, 4]
    # with 10 s a tier it is strict priority: 20.1+, 11, 12.05, 12.2 for tiers 2, 1, 0, 0
    slack = {"ttft_s": 10.0}
    assert order_served(trace, order="edf", order_params=slack, tiers=3) == [0, 3, 4, 2, 1]


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
