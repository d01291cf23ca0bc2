"""CEM: the search on a known function, and short trainings: the same whatever happens to them."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from servegym.agents import cem
from servegym.agents.candidates import linear_space, set_mlp_space
from servegym.agents.cem import Options, Search, advance, changes_of, scores_of, train
from servegym.agents.evaluation import Player, evaluator
from servegym.agents.objectives import OBJECTIVES, find_objective
from servegym.agents.scenarios import Mix
from servegym.agents.units import NAMES, UNIT
from servegym.baselines.learned import linear_policy, load_policy, read_checkpoint
from servegym.simulator.simulation import Simulation

TINY = Options(
    generations=3,
    candidates=6,
    elite=2,
    instances=(2, 3),
    workloads=("azure-conv",),
    lengths=("predicted",),
    requests=300,
    burst_requests=100,
    workers=1,
)


def searched(start, **options):
    """Return a search from `start`, and its options."""
    start = np.array(start, dtype=np.float64)
    search = Search(start, start, np.full(len(start), 1.0), np.ones(len(start)))
    return search, Options(candidates=40, elite=8, **options)


def test_candidates_lie_in_pairs_on_both_sides_of_the_mean():
    search, _ = searched([1.0, -2.0])
    candidates = search.ask(0, 6)
    assert candidates[:3] + candidates[3:] == pytest.approx(np.tile([2.0, -4.0], (3, 1)))
    assert len(np.unique(candidates[:, 0])) == 6


def test_better_ones_of_the_elite_weigh_more():
    search, options = searched([0.0], least_deviation=0.0)
    options = replace(options, elite=2, mean_step=0.5, deviation_step=1.0)
    search.tell(np.array([[4.0], [9.0], [1.0]]), np.array([0.2, 0.9, 0.1]), options)
    # Weights log 2.5 - log 1 = .9163 and log 2.5 - log 2 = .2231: shares .8041 and .1959. Best 1 and 4: mean 1.5876.
    assert search.mean[0] == pytest.approx(0.5 * 1.5876, abs=1e-4)
    # sqrt(.8041 * .5876^2 + .1959 * 2.4124^2) = 1.1906
    assert search.deviation[0] == pytest.approx(1.1906, abs=1e-4)


def test_a_search_finds_the_least_of_a_quadratic():
    # Cost 1000 + |x - (3, -2)|^2 on one case, ten times that on another: the least is at (3, -2).
    search, options = searched([0.0, 0.0], least_deviation=0.0)

    def costs(vectors):
        own = 1000.0 + ((vectors - np.array([3.0, -2.0])) ** 2).sum(axis=1)
        return np.array([own, 10.0 * own])

    change = 0.0
    for _ in range(30):
        change = advance(search, options, costs)
    assert search.mean == pytest.approx([3.0, -2.0], abs=0.02)
    # The start costs 1000 + 9 + 4 = 1013, the least 1000.
    assert change == pytest.approx(-13 / 1013, abs=1e-5)


def test_a_coordinate_without_deviation_stays():
    search, options = searched([0.0, 1.0])
    search.deviation[1] = search.scale[1] = 0.0
    for _ in range(5):
        advance(search, options, lambda vectors: np.array([1.0 + vectors[:, 0] ** 2]))
    assert search.mean[1] == pytest.approx(1.0, abs=1e-12)


def test_deviations_do_not_fall_below_the_least():
    search, options = searched([0.0], least_deviation=0.2)
    for _ in range(40):
        advance(search, options, lambda vectors: np.array([1.0 + vectors[:, 0] ** 2]))
    assert search.deviation[0] == 0.2


def test_failures_are_avoided_and_reported(capsys):
    search, options = searched([0.0])

    def costs(vectors):
        own = 1.0 + (vectors[:, 0] - 2.0) ** 2
        return np.array([np.where(vectors[:, 0] > 0.5, np.nan, own)])

    for _ in range(20):
        advance(search, options, costs)
    assert 0.0 < search.mean[0] <= 0.6  # near 2 is best, but beyond .5 everything fails
    assert "candidates failed; a failed run counts as +100 %" in capsys.readouterr().err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The card of a tiny training, and its options."""
    options = replace(TINY, out=tmp_path_factory.mktemp("trained") / "tiny")
    return train(options, "servegym train dispatch"), options


def test_the_checkpoint_plays_and_its_card_says_how_it_came_to_be(trained):
    card, options = trained
    checkpoint = read_checkpoint(options.out)
    assert checkpoint.card["algorithm"] == "cem"
    assert checkpoint.card["objective"] == "mean-e2e"
    assert checkpoint.card["command"] == "servegym train dispatch"
    assert checkpoint.card["trained_on"]["requests"] == 300
    assert card["file"] == f"{options.out}.safetensors"
    policy = load_policy("dispatch", str(options.out))
    row = card["evaluation"]["cases"][0]
    case = options.mix().validation_cases()[0]
    simulation = Simulation(case.trace(), case.config(), policy, seed=case.seed)
    simulation.run()
    assert simulation.result().summary()["e2e_s"]["mean"] == row["learned"]


def test_an_untrained_fleet_size_is_evaluated(trained):
    card, _ = trained
    assert {row["instances"] for row in card["evaluation"]["cases"]} == {2, 3, 4, 12}


def weights(options):
    return read_checkpoint(options.out).tensors["weight"]


def test_two_processes_train_the_same_policy(trained, tmp_path):
    other = replace(trained[1], out=tmp_path / "two", workers=2)
    train(other, "")
    assert np.array_equal(weights(other), weights(trained[1]))


def test_another_seed_trains_another_policy(trained, tmp_path):
    other = replace(trained[1], out=tmp_path / "other", seed=1)
    train(other, "")
    assert not np.array_equal(weights(other), weights(trained[1]))


def test_a_training_that_was_interrupted_goes_on_to_the_same_policy(
    trained, tmp_path, monkeypatch, capsys
):
    options = replace(trained[1], out=tmp_path / "resumed")
    with monkeypatch.context() as patch:
        interrupted_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            train(options, "")
    assert "--resume" in capsys.readouterr().err
    assert not options.out.with_suffix(".safetensors").exists()
    train(replace(options, resume=True), "")
    assert np.array_equal(weights(options), weights(trained[1]))


def interrupted_after(monkeypatch, generations):
    """Let a training end as by Ctrl-C once so many generations are kept."""
    save = cem.save

    def interrupted_save(own, search, record):
        save(own, search, record)
        if search.generation == generations:
            raise KeyboardInterrupt

    monkeypatch.setattr(cem, "save", interrupted_save)


def test_a_training_that_was_interrupted_is_not_begun_anew_over(tmp_path, monkeypatch, capsys):
    options = replace(TINY, out=tmp_path / "mine")
    with monkeypatch.context() as patch:
        interrupted_after(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train(options, "as first typed")
    state = tmp_path / "mine.state.json"
    kept = state.read_bytes()
    with pytest.raises(ValueError, match="mine.state.json is of a training that has not finished"):
        train(replace(options, seed=1), "")
    assert state.read_bytes() == kept
    card = train(replace(options, resume=True), "typed with --resume")
    assert (card["command"], card["resumed"]) == ("as first typed", "typed with --resume")
    capsys.readouterr()
    again = train(replace(options, generations=1), "typed again")  # it has finished
    assert f"{options.out}.safetensors is there already; it is replaced" in capsys.readouterr().err
    assert again["command"] == "typed again" and "resumed" not in again


def test_a_state_that_cannot_be_read_is_not_begun_anew_over(tmp_path):
    (tmp_path / "mine.state.json").write_text("{")
    with pytest.raises(ValueError, match="--resume goes on with it; remove it or name another"):
        train(replace(TINY, out=tmp_path / "mine"), "")


def test_going_on_further_is_unfinished_until_it_has_ended(tmp_path, monkeypatch):
    options = replace(TINY, out=tmp_path / "mine", generations=1)
    train(options, "")
    with monkeypatch.context() as patch:
        interrupted_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            train(replace(options, generations=3, resume=True), "")
    with pytest.raises(ValueError, match="has not finished"):
        train(options, "")


def test_a_state_of_other_options_is_not_resumed(trained):
    with pytest.raises(ValueError, match="seed = 5; .* was begun with 0"):
        train(replace(trained[1], seed=5, resume=True), "")


def test_there_must_be_a_state_to_resume(tmp_path):
    with pytest.raises(ValueError, match="--resume: there is no .*none.state.json"):
        train(replace(TINY, out=tmp_path / "none", resume=True), "")
    (tmp_path / "none.state.json").write_text(json.dumps({"options": {}}))
    with pytest.raises(ValueError, match="is no state of a training"):
        train(replace(TINY, out=tmp_path / "none", resume=True), "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "mean-e2"}, "did you mean 'mean-e2e'"),
        ({"candidates": 0}, "candidates = 0; must be >= 1"),
        ({"candidates": 7}, "candidates = 7; must be even"),
        ({"elite": 7}, "elite = 7; must be <= candidates = 6"),
        ({"mean_step": 0.0}, "mean_step = 0.0"),
        ({"least_deviation": 1.0}, "least_deviation = 1.0"),
        ({"workers": 0}, "workers = 0"),
        ({"hidden": 5000}, "hidden = 5000; must be in 1 .. 1024"),
        ({"deviation": float("inf")}, "deviation = inf"),
        ({"loads": (0.9, float("inf"))}, "loads = .0.9, inf.; must be the least and the largest"),
    ],
)
def test_options_that_cannot_be_trained_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        train(replace(TINY, **options), "")


def test_training_improves_on_its_start():
    # Few generations of short runs of two instances, where the start is not far from the best.
    options = replace(TINY, candidates=16, elite=4, generations=8, requests=1_500, instances=(2,))
    space = linear_space()
    start = space.start
    search = Search(start, start, options.deviation * space.scale, space.scale)
    cases = options.mix().training_cases(0, 0)
    with evaluator(1, "mean-e2e") as players:

        def costs(vectors):
            return cem.costs_of(vectors, space, players, cases)

        for _ in range(options.generations):
            advance(search, options, costs)
        before, after = costs(np.vstack([start, search.mean])).mean(axis=0)
    assert after < 0.995 * before


def test_processes_end_when_the_one_that_trains_is_killed():
    code = (
        "import os, time\n"
        "from servegym.agents.evaluation import pool_of\n"
        "if __name__ == '__main__':\n"
        "    with pool_of(2) as pool:\n"
        "        print(pool.submit(os.getpid).result(), flush=True)\n"
        "        time.sleep(60)\n"
    )
    trainer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    player = int(trainer.stdout.readline())
    trainer.kill()
    trainer.wait()
    until_s = time.monotonic() + 20
    while is_alive(player) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not is_alive(player)


def is_alive(process):
    """Return whether a process is there, and not only its entry."""
    status = Path(f"/proc/{process}/status")
    return status.exists() and "\nState:\tZ" not in status.read_text()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_costs_of_candidates_are_those_of_single_runs(objective):
    case = Mix(instances=(2,), requests=200).validation_cases()[0]
    policies = [linear_policy(np.eye(57)[k]) for k in (0, 15, 16)]
    with evaluator(1, objective) as players:
        costs = players.costs(policies, [case])
    for policy, cost in zip(policies, costs[0], strict=True):
        simulation = Simulation(case.trace(), case.config(), policy, seed=case.seed)
        simulation.run()
        assert find_objective(objective).cost(simulation.result()) == cost


def test_a_player_plays_a_case_the_same_after_another():
    one = Mix(instances=(2,), requests=200).training_cases(0, 0)[0]
    other = replace(one, seed=one.seed + 1)  # of the same kind of cluster: in the same arrays
    policy, player = linear_policy(np.eye(57)[15]), Player()
    first = player.play(policy, one).summary()["e2e_s"]["mean"]
    player.play(policy, other)
    assert player.play(policy, one).summary()["e2e_s"]["mean"] == first


def test_a_set_network_begins_as_the_linear_score_and_trains(tmp_path):
    space, linear = set_mlp_space(4, 0), linear_space()
    tensors = space.tensors(space.start)
    assert np.array_equal(tensors["skip.weight"][0], linear.tensors(linear.start)["weight"])
    assert not np.any(tensors["out.weight"])
    options = replace(TINY, architecture="set-mlp", hidden=4, generations=1, out=tmp_path / "set")
    card = train(options, "")
    assert card["hidden"] == read_checkpoint(options.out).card["hidden"] == 4
    assert all(row["learned"] > 0 for row in card["evaluation"]["cases"])


def test_a_linear_vector_is_in_units_of_its_terms():
    space = linear_space()
    assert set(UNIT) == set(NAMES)  # or a feature would have none
    weight = space.tensors(np.ones(57))["weight"]
    tokens_left = NAMES.index("tokens_left")
    # 1 / .36; its product with kv_need, .2 of that unit: 1 / .072.
    assert weight[tokens_left] == pytest.approx(1 / 0.36)
    assert weight[2 * 19 + tokens_left] == pytest.approx(1 / 0.072)
    assert not weight[[18, 37, 56]].any()  # accepts


def test_a_change_is_a_share_of_what_the_start_costs():
    # -5 % and -40 %; +50 % and a failure, which counts as +100 %, as does what is worse.
    costs = np.array([[1.9, 3.0, 1.0], [6.0, np.nan, 1e6]])
    changes = changes_of(costs, np.array([2.0, 10.0]))
    assert changes == pytest.approx(np.array([[-0.05, 0.5, -0.5], [-0.4, 1.0, 1.0]]))
    # A cost of minus a goodput: from 4 to 4.2 requests a second is 5 % less.
    assert changes_of(np.array([[-4.2]]), np.array([-4.0])) == pytest.approx(np.array([[-0.05]]))
    # Nothing is said where the start failed.
    known = changes_of(np.array([[1.9], [1.0]]), np.array([2.0, np.nan]))
    assert known == pytest.approx(np.array([[-0.05]]))


def test_gains_saturate_and_losses_do_not():
    # .06 * tanh(.05 / .06) = .0409, .06 * tanh(.4 / .06) = .0600; 2 % more and 40 % more count as they are.
    costs = np.array([[0.95, 0.6, 1.02, 1.4]])
    scores = scores_of(costs, np.array([1.0]))
    assert scores == pytest.approx([-0.0409, -0.06, 0.02, 0.4], abs=1e-4)
    # So a candidate that gains 40 % in one case and loses 10 % in another is worse than one that gains 2 % in both.
    lucky, steady = scores_of(np.array([[0.6, 0.98], [1.1, 0.98]]), np.ones(2))
    assert steady < 0 < lucky


def test_where_nothing_is_known_all_score_the_same():
    assert scores_of(np.array([[1.0, 2.0]]), np.array([np.nan])).tolist() == [0.0, 0.0]
