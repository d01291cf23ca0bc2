"""Objectives: each number is the Result's own."""

import math

import numpy as np
import pytest

from servegym import simulate
from servegym.agents.objectives import OBJECTIVES, find_objective
from servegym.envs.dispatch import DispatchEnv
from servegym.simulator.slo import Slo
from servegym.traces import generate, workload


@pytest.fixture(scope="module")
def result():
    """Two tiers on a crowded cluster, so that SLOs are missed."""
    trace = generate(workload("azure-conv"), 600, 20.0, 3).assign_tiers("uniform", 3, 2)
    return simulate(trace, instances=2, scenario="tight", tiers=2, load=1.2)


def test_every_objective_is_a_number_of_the_summary(result):
    summary, ttft_only = result.summary(), result.summary(Slo(ttft_s=1.0, tpot_s=1e6))
    met = [tier["slo_met"] for tier in summary["tiers"]]
    expected = {
        "mean-e2e": summary["e2e_s"]["mean"],
        "p99-e2e": summary["e2e_s"]["p99"],
        "ttft-slo": ttft_only["slo_attainment"],
        "goodput": (met[0] + met[1] / 2) / summary["span_s"],
    }
    assert {name: objective.of(result) for name, objective in OBJECTIVES.items()} == expected
    assert 0 < expected["ttft-slo"] < 1  # or nothing would be tested


def test_goodput_with_one_tier_is_that_of_the_summary():
    trace = generate(workload("azure-conv"), 300, 20.0, 4)
    result = simulate(trace, instances=2, load=1.0)
    assert find_objective("goodput").of(result) == result.summary()["goodput_per_s"]


def test_a_cost_is_what_is_to_be_minimised(result):
    for objective in OBJECTIVES.values():
        sign = 1 if objective.better == "lower" else -1
        assert objective.cost(result) == sign * objective.of(result)


def test_nothing_finished_is_undefined_and_meets_no_slo():
    trace = generate(workload("azure-conv"), 50, 20.0, 4)
    result = simulate(trace, instances=1, horizon_s=0.5, load=1.0)
    assert result.summary()["offered"] > 0 == result.summary()["finished"]
    assert math.isnan(find_objective("mean-e2e").of(result))
    assert math.isnan(find_objective("p99-e2e").of(result))
    assert find_objective("goodput").of(result) == 0.0


@pytest.mark.parametrize("name", OBJECTIVES)
def test_rewards_of_an_episode_add_up_to_its_term(name):
    objective = OBJECTIVES[name]
    cluster = {"instances": 2, "max_num_seqs": 2}  # few seats, so that some are late
    env = DispatchEnv(
        episode_requests=40, load=2.0, horizon_s=None, cluster=cluster, **objective.env_options
    )
    _, info = env.reset(seed=0)
    total, is_over = 0.0, False
    while not is_over:
        action = int(np.argmax(info["action_mask"]))
        _, reward, terminated, truncated, info = env.step(action)
        total, is_over = total + reward, terminated or truncated
    result = env.result()
    # One tier: an SLO pays 1 for each request that met it and -1 for each other, 2 * met - 40 in all.
    expected = {
        "mean-e2e": -40 * objective.of(result),
        "p99-e2e": -result.total_latency_s,
        "ttft-slo": 2 * 40 * objective.of(result) - 40,
        "goodput": 2 * objective.of(result) * result.summary()["span_s"] - 40,
    }
    assert total == pytest.approx(expected[name], rel=1e-6)
    assert objective.reward == "latency" or -40 < total < 40


def test_an_unknown_objective_names_the_nearest():
    with pytest.raises(ValueError, match="unknown objective 'mean-e2'; did you mean 'mean-e2e'"):
        find_objective("mean-e2")
