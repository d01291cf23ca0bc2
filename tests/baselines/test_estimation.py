"""Estimators: what they predict, and what must hold for every one that ships."""

import math

import numpy as np
import pytest
from flat_profile import FLAT

from servegym.baselines.estimation.constant import mean_output_tokens
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy, policy_names
from servegym.simulator.simulation import Simulation
from servegym.traces import Labels, Trace
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


def predicted(trace: Trace, estimator: str, seed: int = 0, **params: float) -> list[int]:
    """Return the predictions of a whole run, in order of arrival."""
    return run(trace, estimator, seed, **params).state.requests["predicted_tokens"].tolist()


def one_after_the_other(outputs: list[int], prompt: int = 10, **labels) -> Trace:
    """Return requests so far apart that each ends before the next comes."""
    n = len(outputs)
    return Trace(np.arange(n) * 1000.0, np.full(n, prompt), outputs, **labels)


# The noisy estimator.


def test_noisy_without_error_is_the_oracle():
    trace = generate("azure-conv", 300, 10.0, 0)
    assert predicted(trace, "noisy", error=0.0) == trace.output_tokens.tolist()


def test_noisy_has_the_error_asked_for():
    # MAE of 1 + N(0, .2) is .2 * sqrt(2 / pi) = .1596 of the truth; clipping and rounding play no part
    trace = Trace(np.arange(4000.0), np.full(4000, 10), np.full(4000, 1000))
    factors = np.array(predicted(trace, "noisy", error=0.2)) / 1000
    assert factors.mean() == pytest.approx(1.0, abs=4 * 0.2 / math.sqrt(4000))
    assert abs(factors - 1).mean() == pytest.approx(0.1596, rel=0.05)


def test_noisy_clips_its_factor_and_predicts_a_token_at_least():
    trace = Trace(np.arange(400.0), np.full(400, 10), np.where(np.arange(400) < 200, 1000, 2))
    factors = np.array(predicted(trace, "noisy", error=5.0))
    # 1 + 5 z < .1 for 43 % of all deviates, > 5 for 21 %
    assert {100, 5000} <= set(factors[:200].tolist())
    assert factors[:200].min() == 100 and factors[:200].max() == 5000
    assert factors[200:].min() == 1 and factors[200:].max() == 10


# By category.


def test_category_predicts_the_mean_of_each_category():
    labels = Labels(("a", "b"), [1, 0, 1, 1])
    trace = one_after_the_other([10, 100, 20, 60], category=labels)
    # b: (10 + 20 + 60) / 3 = 30, a: 100
    assert predicted(trace, "category") == [30, 100, 30, 30]
    assert predicted(trace, "category", mean_0=7) == [30, 7, 30, 30]


def test_category_without_categories_is_the_mean_of_all():
    assert predicted(one_after_the_other([10, 20, 60]), "category") == [30, 30, 30]


def test_category_beyond_its_table_is_the_mean_of_all():
    labels = Labels([str(c) for c in range(12)], [11, 10, 9])
    assert predicted(one_after_the_other([10, 20, 60], category=labels), "category") == [30, 30, 60]


# DriftSched's.

TASKS = {
    "category": Labels(("report", "short_qa"), [1, 0, 1, 1]),
    "tenant": Labels(("batch", "premium"), [1, 0, 1, 1]),
}


def test_driftsched_is_base_times_tenant_times_prompt_length():
    # 64 * 1.2 * 1.1 = 84.48; 512 * .8 * 1.1 = 450.56; codes are found by name, in whatever order
    trace = one_after_the_other([32, 9, 1000, 9], prompt=100, **TASKS)
    assert predicted(trace, "driftsched", adaptive=0) == [84, 450, 84, 84]
    # the prompt's factor ends at 1.5: 64 * 1.2 * 1.5 = 115.2
    long = one_after_the_other([32, 9, 1000, 9], prompt=900, **TASKS)
    assert predicted(long, "driftsched", adaptive=0)[0] == 115


def test_driftsched_moves_each_categorys_bias_towards_what_it_sees():
    # 32 / 64 = .5: B = .9 + .1 * .5 = .95, and 84.48 * .95 = 80.26; then 1000 / 64 is cut to 3:
    # B = .9 * .95 + .3 = 1.155, and 84.48 * 1.155 = 97.57. The report in between does not touch it.
    trace = one_after_the_other([32, 9, 1000, 9], prompt=100, **TASKS)
    assert predicted(trace, "driftsched") == [84, 450, 80, 97]


def test_driftsched_forgets_at_rate_alpha():
    # alpha = 1 keeps the last ratio only: 84.48 * .5 = 42.24, 84.48 * 3 = 253.44
    trace = one_after_the_other([32, 9, 1000, 9], prompt=100, **TASKS)
    assert predicted(trace, "driftsched", alpha=1.0) == [84, 450, 42, 253]


def test_driftsched_of_unknown_tasks_corrects_the_workloads_mean():
    # mean 40; 40 * 1.1 = 44; then B = .9 + .1 * 20 / 40 = .95: 41.8; and .9 * .95 + .1 * 1.5 = 1.005: 44.22
    trace = one_after_the_other([20, 60, 40], prompt=100)
    assert predicted(trace, "driftsched") == [44, 41, 44]


# The quantile estimator.


def test_quantile_moves_down_when_it_covers_and_up_when_it_does_not():
    # in logs by .1 * .5 = .05: 100, 100 / e**.05 = 95.12 after 50, 100 again after 200
    trace = one_after_the_other([50, 200, 60])
    assert predicted(trace, "quantile", start=100, step=0.1) == [100, 95, 100]


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_quantile_covers_the_share_asked_for(q):
    outputs = np.ceil(np.random.default_rng(0).exponential(200, 4000))
    trace = Trace(np.arange(4000) * 100.0, np.full(4000, 10), outputs)
    covered = outputs <= predicted(trace, "quantile", q=q, start=10)
    assert covered[1000:].mean() == pytest.approx(q, abs=0.03)


def test_case_20_estimators_that_learn_start_from_a_stated_prediction():
    """Before anything has ended, a learned length was 0, NaN or a crash."""
    tasks = {name: labels.take(slice(3)) for name, labels in TASKS.items()}
    trace = one_after_the_other([10, 20, 60], prompt=100, **tasks)
    trace = Trace.from_frame(trace.to_frame().assign(arrival_s=0.0))
    assert predicted(trace, "quantile") == [30, 30, 30]
    assert predicted(trace, "driftsched") == [84, 450, 84]


# Every estimator.


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
