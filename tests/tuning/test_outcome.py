"""What a study reports: gains by hand, held-out seeds, importances, pruning after the seeds that can show it."""

import math
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from tuning_problems import CLUSTER, SYSTEM, place, problem

from servegym.baselines.simulate import simulate
from servegym.tuning.outcome import Paired, importances_of, outcome_of
from servegym.tuning.player import Player
from servegym.tuning.report import save, to_text
from servegym.tuning.search import search
from servegym.tuning.tables import trials_table

SPACE = {
    "peak": FloatDistribution(0.0, 0.6),
    "form": CategoricalDistribution(("exponential", "linear")),
}


def test_difference_is_paired_and_its_interval_is_students():
    paired = Paired((0, 1, 2), best=(1.0, 2.0, 3.0), default=(2.0, 4.0, 3.0), better="lower")
    # differences -1, -2, 0: mean -1, s 1; t(.975, 2) = 4.3027, half 4.3027 / sqrt(3) = 2.4842
    found = paired.difference
    assert (found.mean, found.n) == (-1.0, 3)
    assert found.low == pytest.approx(-3.4842, abs=1e-4)
    assert found.high == pytest.approx(1.4842, abs=1e-4)
    assert paired.verdict == "no difference"
    assert paired.change_percent == pytest.approx(-100.0 / 3.0)  # of a mean of 3


@pytest.mark.parametrize(("better", "told"), [("lower", "worse"), ("higher", "better")])
def test_verdict_goes_by_the_objectives_direction(better: str, told: str):
    paired = Paired((0, 1, 2), best=(2.0, 3.1, 4.0), default=(1.0, 2.0, 3.0), better=better)
    assert paired.verdict == told


@pytest.mark.parametrize("failing", [0, 3])
def test_trials_are_reported_where_the_default_cannot_be_judged(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Seed 0 is a tuning seed, 3 a held-out one; on it the default fails, as one that deadlocks does."""
    asked = problem()
    study = search(asked, place(tmp_path), 2)
    run = Player.run

    def failing_run(self: Player, params: Any, seed: int) -> Any:
        if not params and seed == failing:
            raise RuntimeError("no progress")
        return run(self, params, seed)

    monkeypatch.setattr(Player, "run", failing_run)
    outcome = outcome_of(study, asked)
    assert outcome.best is not None and outcome.held_out is None
    assert (outcome.tuning is None) == (failing == 0)
    what = "the default cannot be played" if failing == 0 else "not judged on held-out seeds"
    assert outcome.notes == (f"{what}: no progress",)
    assert f"note: {what}" in to_text(outcome)
    names = {path.name for path in save(outcome, tmp_path)}
    assert {"report.json", "best.yaml", "history.png"} <= names


def test_best_is_judged_on_held_out_seeds_that_no_trial_played(tmp_path: Path):
    asked = problem(held_out=3)
    assert set(asked.held_out_seeds).isdisjoint(asked.tuning_seeds)
    study = search(asked, place(tmp_path), 6)
    outcome = outcome_of(study, asked)
    best = min(study.trials, key=lambda t: t.values[0])
    assert outcome.best is not None and outcome.best.number == best.number
    assert outcome.held_out is not None and outcome.held_out.seeds == (3, 4, 5)

    text = f"{SYSTEM},peak={best.params['peak']},form={int(best.params['form'] == 'linear')}"
    player = Player(asked, asked.held_out_seeds)
    for k, seed in enumerate((3, 4, 5)):
        trace = player.trace(seed, tiers=3)
        for system, values in ((text, outcome.held_out.best), (SYSTEM, outcome.held_out.default)):
            summary = simulate(trace, system=system, seed=seed, **CLUSTER).summary()
            assert values[k] == pytest.approx(summary["e2e_s"]["mean"], rel=1e-12)
    assert outcome.tuning is not None
    assert outcome.tuning.default == tuple(study.trials[0].intermediate_values.values())


def test_all_candidates_play_the_same_arrivals_and_lengths_whatever_their_tiers():
    player = Player(problem())
    one, three = player.trace(0, 1), player.trace(0, 3)
    assert (one.arrival_s == three.arrival_s).all()
    assert (one.output_tokens == three.output_tokens).all()
    assert set(one.tier) == {0} and set(three.tier) == {0, 1, 2}


def trial_of(peak: float, form: str, gain: float, n_seeds: int) -> FrozenTrial:
    state = TrialState.COMPLETE if n_seeds == 3 else TrialState.PRUNED
    values = {seed: 10.0 + seed + gain for seed in range(n_seeds)}
    return create_trial(
        state=state,
        value=11.0 + gain,
        params={"peak": peak, "form": form},
        distributions=dict(SPACE),
        intermediate_values=values,
    )


def test_importance_goes_to_what_makes_trials_good_also_by_those_that_were_given_up():
    # gain = 5 * peak, whatever the form; only the better half was played to its end
    trials = [
        trial_of(0.6 * k / 40, ("linear", "exponential")[k % 2], 3.0 * k / 40, 3 if k < 20 else 2)
        for k in range(40)
    ]
    default = {seed: 10.0 + seed for seed in range(3)}
    found = importances_of(trials, problem(), default)
    assert found is not None and list(found) == ["peak", "form"]
    assert found["peak"] > 0.9 and sum(found.values()) == pytest.approx(1.0)
    assert importances_of(trials[:19], problem(), default) is None  # too few to tell


@pytest.mark.parametrize(("prune_p", "n_played"), [(0.2, 3), (0.1, 4), (0.01, 5), (0.0, 5)])
def test_trial_that_loses_every_seed_is_given_up_once_the_test_can_tell(
    prune_p: float, n_played: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # one-sided p of n losses in n is 2^-n: .125 at 3, .0625 at 4, and never below .01 in 5
    def value(self: Player, params: Any, seed: int) -> float:
        return 1.0 + seed if params == {"peak": 0.2, "form": "exponential"} else 2.0 + 1.1 * seed

    monkeypatch.setattr(Player, "value", value)
    study = search(problem(seeds=5, prune_p=prune_p), place(tmp_path), 4)
    assert len(study.trials[0].intermediate_values) == 5
    for trial in study.trials[1:]:
        assert len(trial.intermediate_values) == n_played
        assert (trial.state == TrialState.PRUNED) == (n_played < 5)
    assert study.best_trial.number == 0
    table = trials_table(outcome_of(study, problem(seeds=5, prune_p=prune_p, held_out=0)))
    # the table's value is the mean over the seeds played: 2 + 1.1 * (0 + ... + n - 1) / n
    assert table["value"].tolist()[1] == pytest.approx(2.0 + 1.1 * (n_played - 1) / 2)


def test_pruned_trials_count_towards_the_total_and_are_never_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def value(self: Player, params: Any, seed: int) -> float:
        # great on seeds 0 to 2 by chance only for the default; others lose, then would win
        return 1.0 if params["peak"] == 0.2 else (2.0 if seed < 3 else -math.e)

    monkeypatch.setattr(Player, "value", value)
    study = search(problem(seeds=5, prune_p=0.2), place(tmp_path), 5)
    assert len(study.trials) == 5 and study.best_trial.number == 0
