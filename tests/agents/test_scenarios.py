"""Scenarios: seeds that never meet, and cases that are what compare plays."""

from itertools import pairwise

import pytest

from servegym.agents.scenarios import (
    HELD_OUT_SEEDS,
    TRAINING_SEEDS,
    VALIDATION_SEEDS,
    Case,
    Mix,
)
from servegym.experiments.compare import compare
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation


def test_seeds_of_training_validation_and_held_out_never_meet():
    ranges = sorted([HELD_OUT_SEEDS, VALIDATION_SEEDS, TRAINING_SEEDS], key=lambda each: each.start)
    for before, after in pairwise(ranges):
        assert before.stop <= after.start
    mix = Mix()
    assert all(case.seed in VALIDATION_SEEDS for case in mix.validation_cases())
    drawn = [case for g in range(50) for case in mix.training_cases(1, g)]
    assert all(case.seed in TRAINING_SEEDS for case in drawn)
    assert len({case.seed for case in drawn}) == len(drawn)


def test_a_generation_has_every_corner_once_and_stratified_loads():
    mix = Mix((2, 3), ("sharegpt",), ("predicted", "learned"))
    cases = mix.training_cases(seed=0, generation=4)
    assert [(c.instances, c.lengths) for c in cases] == [
        (2, "predicted"),
        (2, "learned"),
        (3, "predicted"),
        (3, "learned"),
    ]
    low, high = mix.loads
    strata = sorted(int(4 * (case.load - low) / (high - low)) for case in cases)
    assert strata == [0, 1, 2, 3]  # one load in each quarter of the range
    assert cases == mix.training_cases(0, 4) != mix.training_cases(0, 5)


def test_scenarios_have_equal_shares_of_a_generation_and_all_of_validation():
    mix = Mix(instances=(2, 3), scenarios=("tight", "default"))
    for generation in range(20):
        cases = mix.training_cases(0, generation)
        for part in (cases[:8], cases[8:]):  # steady ones, and bursts
            shown = [case.scenario for case in part]
            assert shown.count("tight") == shown.count("default")
    of_corner = {mix.training_cases(0, generation)[0].scenario for generation in range(20)}
    assert of_corner == {"tight", "default"}
    in_tight, in_default = (
        [case for case in mix.validation_cases() if case.scenario == scenario]
        for scenario in mix.scenarios
    )
    assert in_tight == Mix(instances=(2, 3), scenarios=("tight",)).validation_cases()
    assert len(in_default) == len(in_tight)


@pytest.mark.parametrize(("instances", "n_scenarios"), [((2,), 2), ((2,), 3), ((2, 3, 4), 2)])
def test_scenarios_that_do_not_divide_the_cases_take_turns_over_generations(instances, n_scenarios):
    scenarios = ("tight", "default", "no-paging")[:n_scenarios]
    mix = Mix(instances, ("azure-conv",), ("predicted",), scenarios=scenarios)
    generations = [mix.training_cases(0, generation) for generation in range(300)]
    for part in (slice(0, len(instances)), slice(len(instances), None)):  # steady ones, and bursts
        shown = [case.scenario for cases in generations for case in cases[part]]
        for scenario in scenarios:
            assert shown.count(scenario) == pytest.approx(len(shown) / n_scenarios, rel=0.2)


def test_only_a_workload_with_arrivals_of_its_own_has_bursts():
    mix = Mix(instances=(2, 3), requests=500, burst_requests=100, burst_loads=(1.2, 1.3))
    cases = mix.training_cases(0, 0)
    # Fleets, workloads and lengths; fleets and lengths of the workload that has bursts.
    assert len(cases) == 8 + 4
    for case in cases[:8]:
        assert (case.arrivals, case.requests) == ("poisson", 500)
        assert case.load <= 1.08
    for case in cases[8:]:
        assert (case.workload, case.arrivals, case.requests) == ("azure-conv", "fitted", 100)
        assert 1.2 <= case.load <= 1.3
    assert len(Mix(instances=(2, 3), burst_requests=0).training_cases(0, 0)) == 8


@pytest.mark.parametrize(
    ("trained", "untrained"),
    [
        ((4, 6, 16), (8, 64)),  # twice 4; four times 16
        ((2, 4), (8, 16)),  # 4 is trained on
        ((8, 1, 2, 4), (16, 32)),  # so are 2, 4 and 8
        ((3,), (6, 12)),
    ],
)
def test_fleet_sizes_to_evaluate_on_were_not_trained_on(trained, untrained):
    assert Mix(instances=trained).untrained_instances() == untrained


@pytest.mark.parametrize("arrivals", ["poisson", "fitted"])
def test_a_case_is_what_compare_plays(arrivals):
    case = Case("azure-conv", "tight", 2, 0.9, "predicted", 17, 300, arrivals)
    simulation = Simulation(
        case.trace(), case.config(), find_policy("dispatch", "least-requests"), seed=17
    )
    simulation.run()
    runs = compare(
        ["least-requests:estimator=noisy,error=.5"],
        workload="azure-conv",
        scenario="tight",
        instances=2,
        load=0.9,
        seeds=1,
        seed=17,
        n_requests=300,
        arrivals=arrivals,
        progress=False,
    ).runs
    assert runs["e2e_mean_s"][0] == simulation.result().summary()["e2e_s"]["mean"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengths": ("predictd",)}, "unknown lengths 'predictd'; did you mean 'predicted'"),
        ({"workloads": ("azure-con",)}, "azure-conv"),
        ({"instances": ()}, "instances"),
        ({"instances": (4, 0)}, r"instances = \[4, 0\]; must be numbers >= 1"),
        ({"instances": (4, 6, 4)}, r"instances = \[4, 6, 4\]; must name some, each once"),
        ({"workloads": ("sharegpt", "sharegpt")}, "workloads = .*; must name some, each once"),
        ({"lengths": ("oracle", "oracle")}, "lengths = .*; must name some, each once"),
        ({"loads": (1.0, 0.9)}, "loads"),
        ({"burst_loads": (0.0, 1.0)}, "burst_loads"),
        ({"burst_requests": 1}, "burst_requests = 1; must be 0 or >= 2"),
        ({"scenarios": ()}, r"scenarios = \[\]; must name some, each once"),
        ({"scenarios": ("tight", "default", "tight")}, "scenarios = .*; must name some, each once"),
        ({"scenarios": ("tihgt",)}, "unknown scenario 'tihgt'; did you mean 'tight'"),
        ({"requests": 1}, "requests = 1"),
    ],
)
def test_a_mix_that_cannot_be_drawn_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Mix(**options)
