"""What a study found: its best trial against the default, on the seeds it was chosen on and on held-out ones.

The best of many trials is the best partly by luck on the seeds that chose it, so that its gain there is too good. What
counts is the gain on held-out seeds, which no trial played: the paired difference best - default, its interval and its
verdict (experiments/statistics.py). Importances: PED-ANOVA (Watanabe et al., IJCAI 2023), how far a setting's values
in the best tenth of trials differ from those in all; Optuna's fANOVA would need scikit-learn.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from servegym.experiments.metrics import percent
from servegym.experiments.statistics import Interval, mean_interval, paired_difference, verdict
from servegym.tuning.objectives import Objective, find_objective
from servegym.tuning.player import Player
from servegym.tuning.problem import Params, Problem
from servegym.tuning.spaces import Value
from servegym.tuning.tally import Tally, tally

LEAST_FOR_IMPORTANCES = 20  # trials
UNSERVED = ("rejected", "failed", "cancelled", "unfinished")


@dataclass(frozen=True)
class Paired:
    """Values of the best and of the default by seed, and what their difference shows."""

    seeds: tuple[int, ...]
    best: tuple[float, ...]
    default: tuple[float, ...]
    better: str

    @property
    def difference(self) -> Interval:
        """The mean of best - default and its interval."""
        return paired_difference(self.best, self.default)

    @property
    def verdict(self) -> str | None:
        """Better, worse or no difference; None with one seed."""
        return verdict(self.difference, "lower" if self.better == "lower" else "higher")

    @property
    def change_percent(self) -> float | None:
        """The mean difference as a share of the default's mean."""
        return percent(self.difference.mean, mean_interval(self.default).mean)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "seeds": list(self.seeds),
            "best": list(self.best),
            "default": list(self.default),
            "best_mean": plain(mean_interval(self.best)),
            "default_mean": plain(mean_interval(self.default)),
            "difference": plain(self.difference),
            "difference_percent": self.change_percent,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Outcome:
    """What a study found. None of `best` and what follows where no trial is complete."""

    problem: Problem
    name: str
    tally: Tally
    trials: tuple[FrozenTrial, ...]
    best: FrozenTrial | None = None
    tuning: Paired | None = None
    held_out: Paired | None = None
    importances: Mapping[str, float] | None = None
    notes: tuple[str, ...] = ()

    @property
    def objective(self) -> Objective:
        """What was optimised."""
        return find_objective(self.problem.objective)

    @property
    def best_params(self) -> dict[str, Value]:
        """The settings of the best trial."""
        assert self.best is not None
        return dict(self.best.params)


def outcome_of(study: optuna.Study, problem: Problem, player: Player | None = None) -> Outcome:
    """Judge a study's best trial: play it and the default on held-out seeds."""
    trials = tuple(study.get_trials(deepcopy=False))
    counts = tally(study)
    if not counts.complete:
        return Outcome(problem, study.study_name, counts, trials)
    best = study.best_trial
    player = player or Player(problem)
    better = player.objective.better
    own = tuple(best.intermediate_values[seed] for seed in problem.tuning_seeds)
    tuning = held_out = importances = None
    notes: tuple[str, ...] = ()
    try:
        base = tuple(player.value({}, seed) for seed in problem.tuning_seeds)
        tuning = Paired(tuple(problem.tuning_seeds), own, base, better)
        importances = importances_of(trials, problem, dict(zip(tuning.seeds, base, strict=True)))
        if problem.held_out:
            held_out, notes = play_held_out(problem, best.params)
    except (
        ValueError,
        RuntimeError,
    ) as error:  # of one run; the trials are worth a report without it
        where = "the default cannot be played" if tuning is None else "not judged on held-out seeds"
        notes = (f"{where}: {error}",)
    return Outcome(
        problem, study.study_name, counts, trials, best, tuning, held_out, importances, notes
    )


def play_held_out(problem: Problem, best: Params) -> tuple[Paired, tuple[str, ...]]:
    """Play best and default on the held-out seeds; return their values, and what to know of who was not served.

    ValueError where the objective is undefined.
    """
    player = Player(problem, problem.held_out_seeds)
    values: dict[str, list[float]] = {"best": [], "default": []}
    unserved = {"best": 0, "default": 0}
    for seed in problem.held_out_seeds:
        for name, params in (("best", best), ("default", {})):
            result = player.run(params, seed)
            values[name].append(player.value_of(result, seed))
            summary = result.summary()
            unserved[name] += sum(summary[status] for status in UNSERVED)
    notes = []
    if unserved["best"] or unserved["default"]:
        notes.append(
            f"requests not served on held-out seeds: best {unserved['best']:,}, default "
            f"{unserved['default']:,}; latencies are those of finished requests"
        )
    own, base = (tuple(values[name]) for name in ("best", "default"))
    seeds = tuple(problem.held_out_seeds)
    return Paired(seeds, own, base, player.objective.better), tuple(notes)


def importances_of(
    trials: Sequence[FrozenTrial], problem: Problem, default: Mapping[int, float]
) -> dict[str, float] | None:
    """Return each setting's share, the largest first; None if there are too few trials, or Optuna cannot tell.

    Trials that were given up count too, else the settings that make trials bad would seem not to matter. Of each trial
    the mean of its differences to the default is taken, seed by seed, over the seeds that it played.
    """
    done = [trial for trial in trials if is_done(trial) and trial.intermediate_values]
    if len(done) < LEAST_FOR_IMPORTANCES:
        return None
    better = find_objective(problem.objective).better
    copy = optuna.create_study(direction="minimize" if better == "lower" else "maximize")
    for trial in done:
        gains = [value - default[seed] for seed, value in trial.intermediate_values.items()]
        copy.add_trial(
            optuna.trial.create_trial(
                params=trial.params,
                distributions=trial.distributions,
                value=float(np.mean(gains)),
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = optuna.importance.get_param_importances(
                copy, params=[each.key for each in problem.dimensions]
            )
        except (ValueError, RuntimeError):
            return None
    if not all(np.isfinite(list(found.values()))):
        return None
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def value_so_far(trial: FrozenTrial) -> float | None:
    """Return the mean over the seeds that a trial played, None before the first."""
    values = list(trial.intermediate_values.values())
    return float(np.mean(values)) if values else None


def is_done(trial: FrozenTrial) -> bool:
    """Return whether a trial counts towards the total."""
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def plain(interval: Interval) -> dict[str, Any]:
    """Return an interval as plain values."""
    return {"mean": interval.mean, "low": interval.low, "high": interval.high, "n": interval.n}
