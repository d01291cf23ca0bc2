"""One trial: a candidate played seed after seed, given up when the paired seeds say that it is worse than the best.

Each seed's value is an intermediate value under the seed as its step; the trial's value is their mean. The pruner is
Optuna's WilcoxonPruner: a signed-rank test of the seeds that both have played, this trial against the best one, once
three differences are there. Of n seeds the least one-sided p is 2^-n, so that five seeds and p = .2 give a trial up
after three at the earliest, if it lost all of them; it never gives up one whose mean is better.
"""

import math
import warnings
from collections.abc import Callable

import optuna
from optuna.pruners import BasePruner, NopPruner, WilcoxonPruner
from optuna.trial import TrialState

from servegym.tuning.player import Player
from servegym.tuning.spaces import Dimension, Value
from servegym.tuning.tally import INTERRUPTED, REASON

LEAST_SEEDS = 3  # before a trial may be given up


def pruner_of(p: float) -> BasePruner:
    """Return the pruner at a p value, none at 0; ValueError unless 0 <= p < 1."""
    if not 0.0 <= p < 1.0:
        raise ValueError(f"prune_p = {p}; must be >= 0 and < 1")
    if p == 0.0:
        return NopPruner()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return WilcoxonPruner(p_threshold=p, n_startup_steps=LEAST_SEEDS)


def suggest(trial: optuna.Trial, dimension: Dimension) -> Value:
    """Return what a trial tries in one dimension."""
    if dimension.kind == "choice":
        return trial.suggest_categorical(dimension.key, dimension.choices)
    low, high, is_log = dimension.low, dimension.high, dimension.is_log
    if dimension.kind == "whole":
        return trial.suggest_int(dimension.key, int(low), int(high), log=is_log)
    return trial.suggest_float(dimension.key, low, high, log=is_log)


def play(
    study: optuna.Study, trial: optuna.Trial, player: Player, check: Callable[[], None]
) -> str | None:
    """Play a trial to its end and tell the study; return why it failed, None if it did not.

    check: called before every run; what interrupts there is told to the study before it goes on.
    """
    try:
        params = {each.key: suggest(trial, each) for each in player.problem.dimensions}
        values: list[float] = []
        for seed in player.problem.tuning_seeds:
            check()
            values.append(player.value(params, seed))
            trial.report(values[-1], step=seed)
            if len(values) < player.problem.seeds and is_hopeless(trial):
                study.tell(trial, state=TrialState.PRUNED)
                return None
        study.tell(trial, math.fsum(values) / len(values))
        return None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        give_up(study, trial, reason)
        return reason
    except BaseException:
        give_up(study, trial, INTERRUPTED)
        raise


def is_hopeless(trial: optuna.Trial) -> bool:
    """Return whether the pruner gives a trial up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy's, on tied differences
        return trial.should_prune()


def give_up(study: optuna.Study, trial: optuna.Trial, reason: str) -> None:
    """Tell the study that a trial failed, and why."""
    trial.set_user_attr(REASON, reason)
    study.tell(trial, state=TrialState.FAIL)
