"""block, astrolabe and marginal: choices worked out by hand.

FLAT instances take 10 ms an iteration, SLOW 20 ms; the estimator is the oracle, so that predictions come true.
"""

from typing import Any

import numpy as np
import pytest
from flat_profile import FLAT, SLOW
from scipy import stats

from servegym.baselines.dispatch.ties import takes_turn
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import dispatch_policy, find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.views import HOLD, n_instances, predicted_finish_s, tier
from servegym.traces import Trace
from servegym.traces.workload import generate

WHAT_IF = ("block", "astrolabe", "marginal")
PLACED = ("instances", "requests", "slots", "phases", "tiers")  # what placements change


@dispatch_policy(source="test: the request's tier says where", name="test-place-by-tier")
def by_tier(cluster, request, params, memory, rng):
    """Return the request's tier as an instance."""
    return int(tier(request))


def last_choice(
    name: str, rows: list[tuple[int, int]], newcomer: int, seed: int = 0, **options: Any
) -> int:
    """Return where a policy sends a newcomer of so many output tokens, at 5 ms.

    rows: (instance, output tokens) placed at 0 ms. All have 10 prompt tokens.
    """
    where, outputs = np.array(rows).T
    outputs = np.append(outputs, newcomer)
    arrival_s = np.append(np.zeros(len(rows)), 0.005)
    tiers = np.append(where, 0)
    trace = Trace(arrival_s, np.full(len(outputs), 10), outputs, tier=tiers)
    params = options.pop("params", {})
    options = {"instances": 2, "profile": FLAT, "tiers": 10, "estimator": "oracle"} | options
    config = ClusterConfig(**options)
    policy = find_policy("dispatch", name)
    placed = Simulation(trace, config, by_tier, seed=seed)
    placed.run(0.004)
    simulation = Simulation(trace, config, policy, dispatch_params=params, seed=seed)
    for field in PLACED:
        getattr(simulation.state, field)[...] = getattr(placed.state, field)
    simulation.state.shared[0]["next_arrival"] = len(rows)
    simulation.state.shared[0]["now_ps"] = placed.state.shared[0]["now_ps"]
    simulation.run()
    return int(simulation.state.requests["instance"][-1])


@pytest.mark.parametrize("name", WHAT_IF)
def test_newcomer_goes_where_the_seat_is_free_first(name):
    # one seat each: instance 0 is busy for 300 ms, instance 1, with two requests, for 100
    rows = [(0, 30), (1, 5), (1, 5)]
    assert last_choice(name, rows, 3, max_num_seqs=1) == 1


def test_slow_instance_is_taken_when_the_fast_one_is_busy_for_longer():
    # 4 tokens: on SLOW (instance 1) 80 ms; on FLAT behind 3 tokens 25 + 40 ms, behind 5 tokens 45 + 40 ms
    options: dict[str, Any] = {"profile": (FLAT, SLOW), "max_num_seqs": 1}
    assert last_choice("block", [(0, 3)], 4, **options) == 0
    assert last_choice("block", [(0, 5)], 4, **options) == 1


def test_marginal_spares_those_who_would_be_delayed():
    # sjf, one seat: on 0 the newcomer (3) overtakes two waiting (9 each) and ends at 80 ms, delaying both by 30;
    # on 1 nobody waits, and it ends at 90 ms: 85 is less than 75 + 60
    rows = [(0, 5), (0, 9), (0, 9), (1, 6)]
    options: dict[str, Any] = {"order": "sjf", "max_num_seqs": 1}
    assert last_choice("block", rows, 3, **options) == 0
    assert last_choice("marginal", rows, 3, **options) == 1


def test_marginal_by_tier_counts_the_less_urgent_less():
    # as above, but those who would be delayed on instance 5 are of tier 5: 75 + 60 / 32 is less than 85
    rows = [(5, 5), (5, 9), (5, 9), (0, 6)]
    options: dict[str, Any] = {"order": "sjf", "max_num_seqs": 1, "instances": 6}
    busy = [(i, 40) for i in (1, 2, 3, 4)]
    weighted = last_choice("marginal", rows + busy, 3, params={"is_weighted": 1}, **options)
    assert weighted == 5
    assert last_choice("marginal", rows + busy, 3, **options) == 0


@pytest.mark.parametrize("name", WHAT_IF)
def test_equals_are_drawn_among(name):
    chosen = {
        last_choice(name, [(0, 5), (1, 5), (2, 5)], 3, seed, instances=3) for seed in range(40)
    }
    assert chosen == {0, 1, 2}


def test_sampling_everybody_is_block():
    rows = [(0, 30), (1, 20), (2, 10), (3, 40)]
    options: dict[str, Any] = {"instances": 4, "max_num_seqs": 1}
    for seed in range(20):
        assert last_choice("astrolabe", rows, 3, seed, params={"samples": 4}, **options) == 2
    # two of four: the best is among them half of the time
    hits = [last_choice("astrolabe", rows, 3, seed, **options) == 2 for seed in range(200)]
    assert stats.binomtest(sum(hits), 200, 0.5).pvalue > 0.001
    # marginal samples, too
    hits = [
        last_choice("marginal", rows, 3, seed, params={"samples": 2}, **options) == 2
        for seed in range(200)
    ]
    assert stats.binomtest(sum(hits), 200, 0.5).pvalue > 0.001


@pytest.mark.parametrize("error", ["length_error", "latency_error"])
def test_errors_make_wrong_choices_possible_and_none_makes_none(error):
    # 20 tokens: on 0 at once, on 1 behind 9 tokens: 200 ms against 280 ms
    rows = [(1, 9)]
    options: dict[str, Any] = {"max_num_seqs": 1}
    for strength, possible in ((0.0, {0}), (1.0, {0, 1})):
        chosen = {
            last_choice("astrolabe", rows, 20, seed, params={error: strength}, **options)
            for seed in range(60)
        }
        assert chosen == possible


@dispatch_policy(source="test: block, played to the end everywhere", name="test-block-to-the-end")
def block_to_the_end(cluster, request, params, memory, rng):
    """Return what block does, without a limit to what is played."""
    chosen, soonest_s, n_equal = HOLD, float("inf"), 0
    for i in range(n_instances(cluster)):
        finish_s = predicted_finish_s(cluster, request, i)
        if finish_s < soonest_s:
            n_equal = 0
        if finish_s <= soonest_s:
            n_equal += 1
            soonest_s = finish_s
            if takes_turn(rng, n_equal):
                chosen = i
    return chosen


def test_stopping_at_the_best_so_far_changes_no_choice():
    trace = generate("azure-conv", 1500, 14.0, 1)
    config = ClusterConfig(instances=6, profile=FLAT, max_num_seqs=16, estimator="oracle")
    logs = []
    for policy in (find_policy("dispatch", "block"), block_to_the_end):
        simulation = Simulation(trace, config, policy, seed=3)
        simulation.run()
        logs.append(simulation.state.requests)
    np.testing.assert_array_equal(logs[0], logs[1])
    assert len(set(logs[0]["instance"].tolist())) == 6
