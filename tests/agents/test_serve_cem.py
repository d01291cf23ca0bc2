"""Training for Serve: cases, what a candidate costs, and short trainings that come out the same."""

import json
from dataclasses import replace

import numpy as np
import pytest

import servegym
from servegym.agents import serve_cem
from servegym.agents.scenarios import TRAINING_SEEDS, VALIDATION_SEEDS
from servegym.agents.serve_cases import TRAINED, ServeCase, training_cases, validation_cases
from servegym.agents.serve_cem import Options, Player, cost_of, start_of, train
from servegym.baselines.learned import read_checkpoint

TINY = Options(generations=2, candidates=4, elite=2, requests=200, workers=1)
CASE = ServeCase("azure-conv", "few-seats", 3.0, "poisson", 7, 800)


def test_a_case_is_what_compare_plays():
    compared = servegym.compare(
        ["least-requests:queue=strict-priority"],
        workload="azure-conv",
        load=3.0,
        n_requests=800,
        seeds=1,
        seed=7,
        tier_mix="enterprise",
        instances=4,
        tiers=4,
        max_num_seqs=32,
        max_local_waiting=0,
    )
    met = compared.runs["weighted_slo_attainment"].iloc[0]
    assert Player().missed(None, CASE) == pytest.approx(1.0 - met, abs=1e-12)
    assert 0.05 < 1.0 - met < 0.9


def test_cases_are_new_in_every_generation_and_keep_to_their_seeds():
    cases = [case for g in range(5) for case in training_cases(3, g, 100)]
    assert cases == [case for g in range(5) for case in training_cases(3, g, 100)]
    assert len({case.seed for case in cases}) == len(cases) == 5 * len(TRAINED)
    assert all(case.seed in TRAINING_SEEDS for case in cases)
    assert all(case.seed in VALIDATION_SEEDS for case in validation_cases(100))
    for case, (workload, cluster, low, high, arrivals, times) in zip(
        cases, 5 * TRAINED, strict=True
    ):
        assert (case.workload, case.cluster, case.arrivals) == (workload, cluster, arrivals)
        assert low <= case.load <= high
        assert case.requests == times * 100


def test_the_search_begins_near_strict_priority():
    # The start chooses queues as strict priority does; only its instances differ, and so, by little, what is missed.
    start, strict = (Player().missed(w, CASE) for w in (start_of(TINY).start, None))
    assert start == pytest.approx(strict, abs=0.02)


def test_what_is_missed_does_not_depend_on_what_was_played_before():
    longer = replace(CASE, load=1.0, seed=8)  # arrivals go on for longer than those of CASE
    alone, player = Player().missed(None, longer), Player()
    player.missed(None, CASE)
    assert player.missed(None, longer) == alone


def test_whoever_waits_in_vain_misses_almost_all():
    weights = start_of(TINY).start.copy()
    weights[-1] = -1e6
    assert Player().missed(weights, CASE) > 0.9


def test_a_cost_is_the_mean_of_logs():
    # ln(.099 + .001) = ln .1 and ln(0 + .001) = ln .001; ln .1 and ln 1.001
    costs = cost_of(np.array([[0.099, 0.099], [0.0, 1.0]]))
    expected = [(np.log(0.1) + np.log(0.001)) / 2, (np.log(0.1) + np.log(1.001)) / 2]
    assert costs == pytest.approx(expected)


def test_training_is_the_same_interrupted_or_in_processes(tmp_path, monkeypatch):
    whole = train(replace(TINY, out=tmp_path / "whole"), "as typed")
    assert whole["decision"] == "serve"
    assert whole["command"] == "as typed"
    tensors = read_checkpoint(tmp_path / "whole").tensors

    def interrupt(*_):
        raise KeyboardInterrupt

    options = replace(TINY, out=tmp_path / "part")
    with monkeypatch.context() as patch:
        patch.setattr(serve_cem, "choose", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(replace(options, generations=1), "")
    with pytest.raises(ValueError, match="part.state.json is of a training that has not finished"):
        train(options, "")
    train(replace(options, resume=True), "")
    train(replace(TINY, out=tmp_path / "processes", workers=2), "")
    for name in ("part", "processes"):
        again = read_checkpoint(tmp_path / name).tensors
        for part, tensor in tensors.items():
            np.testing.assert_array_equal(again[part], tensor, err_msg=f"{name} {part}")
    with pytest.raises(ValueError, match="seed = 1; .* was begun with 0"):
        train(replace(options, resume=True, seed=1), "")


def test_the_card_says_what_was_missed(tmp_path):
    train(replace(TINY, out=tmp_path / "it"), "")
    evaluation = json.loads((tmp_path / "it.json").read_text())["evaluation"]
    cases = validation_cases(TINY.requests)
    assert [row["seed"] for row in evaluation["cases"]] == [case.seed for case in cases]
    missed = np.array([row["strict_priority"] for row in evaluation["cases"]])
    assert missed[0] == Player().missed(None, cases[0])
    assert evaluation["cost_of_strict_priority"] == pytest.approx(cost_of(missed[:, None])[0])


def test_bad_options_are_named():
    for change, message in (
        ({"elite": 5}, "elite = 5; must be <= candidates = 4"),
        ({"candidates": 0}, "candidates = 0; must be >= 1"),
        ({"mean_step": 0.0}, "mean_step = 0.0; must be in"),
        ({"least_deviation": 1.0}, "least_deviation = 1.0; must be in 0 .. deviation = 0.35"),
        ({"requests": 1}, "requests = 1; must be >= 2"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(TINY, **change).check()
