"""Estimators: what they predict, and what must hold for every one that ships."""

import numpy as np
import pytest
from flat_profile import FLAT

from servegym.baselines.estimation.constant import mean_output_tokens
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy, policy_names
from servegym.simulator.simulation import Simulation
from servegym.traces import Trace
from servegym.traces.workload import generate

ESTIMATORS = [
    name
    for name in policy_names("estimation")
    if find_policy("estimation", name).function.__module__.startswith("servegym.")
]


def run(trace: Trace, estimator: str, seed: int = 0, **params: float) -> Simulation:
    """Run to the end."""
    config = ClusterConfig(profile=FLAT, estimator=estimator, estimator_params=params)
    simulation = Simulation(trace, config, find_policy("dispatch", "least-tokens"), seed=seed)
    simulation.run()
    return simulation


def test_constant_predicts_the_rounded_mean_of_the_trace():
    # (1 + 2 + 5) / 3 = 2.67
    trace = Trace(np.zeros(3), np.full(3, 10), [1, 2, 5])
    assert run(trace, "constant").state.requests["predicted_tokens"].tolist() == [3, 3, 3]


def test_constant_takes_a_number_of_the_users():
    trace = Trace(np.zeros(3), np.full(3, 10), [1, 2, 5])
    records = run(trace, "constant", tokens=50).state.requests
    assert records["predicted_tokens"].tolist() == [50, 50, 50]


def test_constant_of_an_empty_trace_is_one_token():
    assert mean_output_tokens(Trace([], [], [])) == 1.0
    run(Trace([], [], []), "constant")


def test_oracle_predicts_the_truth():
    trace = generate("azure-conv", 300, 10.0, 0)
    records = run(trace, "oracle").state.requests
    assert records["predicted_tokens"].tolist() == trace.output_tokens.tolist()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_predictions_are_stored_beside_the_truth_and_none_is_bad(name):
    trace = generate("azure-conv", 300, 10.0, 0)
    state = run(trace, name).state
    assert state.requests["predicted_tokens"].min() >= 1
    assert state.requests["output_tokens"].tolist() == trace.output_tokens.tolist()
    assert state.shared[0]["n_bad_predictions"] == 0
    assert (state.instances["held_tokens"] == 0).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_predictions_follow_from_the_seed(name):
    trace = generate("azure-conv", 300, 10.0, 0)
    logs = [run(trace, name, seed=7).state.requests["predicted_tokens"] for _ in range(2)]
    np.testing.assert_array_equal(logs[0], logs[1])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_prediction_at_arrival_does_not_know_the_truth_unless_declared(name):
    policy = find_policy("estimation", name)
    trace = generate("azure-conv", 50, 10.0, 0)
    # all at once, so that nobody's end can have been seen; the sum of outputs stays the same
    at_once = [
        Trace(np.zeros(50), trace.prompt_tokens, outputs)
        for outputs in (trace.output_tokens, trace.output_tokens[::-1])
    ]
    logs = [run(t, name).state.requests["predicted_tokens"].tolist() for t in at_once]
    assert (logs[0] == logs[1]) == (not policy.is_oracle)
