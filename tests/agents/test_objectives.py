"""Objectives: each number is the Result's own."""

import math

import pytest

from servegym import simulate
from servegym.agents.objectives import OBJECTIVES, find_objective
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


def test_rewards_are_terms_of_the_environments(result):
    from servegym.envs.dispatch import DispatchEnv

    for objective in OBJECTIVES.values():
        env = DispatchEnv(episode_requests=5, **objective.env_options)
        env.reset(seed=0)
        env.close()


def test_an_unknown_objective_names_the_nearest():
    with pytest.raises(ValueError, match="unknown objective 'mean-e2'; did you mean 'mean-e2e'"):
        find_objective("mean-e2")
