"""What the next trial tries: Optuna's samplers, drawn anew for every trial from the seed and the trial's place.

A sampler of Optuna's keeps a random state that a new process does not have. Here trial n's is a function of (seed,
trials before it that count), so that with one worker the same seed gives identical trials in a new process, and a study
that was killed goes on as if it never had been: killed trials do not count, and Optuna's models leave them out. Trials
that failed of themselves do count, else the same parameters would be tried again.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from servegym.traces.names import near_match
from servegym.tuning.tally import is_lost

SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: TPESampler(seed=seed),
    "random": lambda seed: RandomSampler(seed=seed),
}


class SeededSampler(BaseSampler):
    """A sampler of Optuna's, made anew for every trial."""

    def __init__(self, name: str, seed: int) -> None:
        """ValueError for an unknown name, with the near match."""
        if name not in SAMPLERS:
            raise ValueError(f"unknown sampler {name!r}; {near_match(name, SAMPLERS)}")
        self._make, self._seed = SAMPLERS[name], seed
        self._current = self._make(0)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Make the sampler of this trial."""
        before = [t for t in study.get_trials(deepcopy=False) if t.number < trial.number]
        place = sum(not is_lost(each) for each in before)
        self._current = self._make(seed_of(self._seed, place))
        self._current.before_trial(study, trial)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Ask this trial's sampler."""
        return self._current.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Ask this trial's sampler."""
        return self._current.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Ask this trial's sampler."""
        return self._current.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Any,
    ) -> None:
        """Tell this trial's sampler."""
        self._current.after_trial(study, trial, state, values)


def seed_of(seed: int, place: int) -> int:
    """Return the seed of the trial at a place."""
    return int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
