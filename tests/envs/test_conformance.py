"""Every environment, plain and at random, goes through the public conformance suite; broken ones fail it."""

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from random_arguments import IDS, plain_arguments, random_arguments

from servegym.envs.dispatch import DispatchEnv
from servegym.envs.serve import ServeEnv
from servegym.testing import check_env


@pytest.mark.parametrize("env_id", IDS)
def test_plain_environment_conforms(env_id):
    check_env(env_id, **plain_arguments(env_id))


@pytest.mark.nojit
@pytest.mark.boundscheck
@pytest.mark.parametrize("env_id", IDS)
def test_tiny_environment_conforms_interpreted_and_with_bounds_checked(env_id):
    """Six requests: the kernels as plain Python, and with every index looked at, in CI."""
    arguments = plain_arguments(env_id, episode_requests=6, cluster={"instances": 2})
    check_env(env_id, seeds=[0], n_steps=20, **arguments)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("env_id", IDS)
def test_case_28_random_arguments_conform(env_id, seed):
    """CASES 28, and 25 to 27: copies, masks, actions and sums in any cluster."""
    check_env(env_id, seeds=[seed], n_steps=300, **random_arguments(env_id, seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 120))
@pytest.mark.parametrize("env_id", IDS)
def test_many_random_arguments_conform(env_id, seed):
    check_env(env_id, seeds=[seed], n_steps=1000, **random_arguments(env_id, seed))


@pytest.mark.parametrize("env_id", IDS)
def test_made_wrapped_and_factory_environments_conform(env_id):
    arguments = plain_arguments(env_id, episode_requests=10)
    check_env(gymnasium.make(env_id, **arguments), seeds=[3])
    check_env(
        lambda **given: gymnasium.wrappers.FlattenObservation(gymnasium.make(env_id, **given)),
        seeds=[3],
        **arguments,
    )


def test_time_limit_around_it_conforms():
    check_env("servegym/Serve-v0", seeds=[0], max_episode_steps=7, episode_requests=30)


# A suite that cannot fail tests nothing: each of these is broken in one place.

Broken = type[gymnasium.Env]


class OneStepLate(ServeEnv):
    """Masks are those of the decision before."""

    _old = None

    def action_masks(self) -> np.ndarray:
        old, self._old = self._old, super().action_masks()
        return self._old if old is None else old


class Wide(DispatchEnv):
    """Observations are float64."""

    def _observation(self) -> Any:
        observation: Any = super()._observation()
        return {name: value.astype(np.float64) for name, value in observation.items()}


class Infinite(DispatchEnv):
    """An observation is not finite."""

    def _observation(self) -> Any:
        observation: Any = super()._observation()
        observation["cluster"][0] = np.nan
        return observation


class Rounding(DispatchEnv):
    """2.5 is taken as 2."""

    def step(self, action: Any) -> Any:
        return super().step(
            int(action) if isinstance(action, float) and abs(action) < 9 else action
        )


class Spoiling(DispatchEnv):
    """What is no action is refused, but counted before."""

    def step(self, action: Any) -> Any:
        if self._episode >= 0:
            self.batch.table.levels[0] += 1
        return super().step(action)


class Forgiving(DispatchEnv):
    """A masked action is not counted."""

    def step(self, action: Any) -> Any:
        shown = super().step(action)
        self.batch.episodes["n_illegal"] = 0
        return shown


class Generous(ServeEnv):
    """Strict, and yet takes what is masked."""

    def step(self, action: Any) -> Any:
        self.is_strict = False
        return super().step(action)


class Unseeded(DispatchEnv):
    """Every episode is another, whatever the seed."""

    def reset(self, **options: Any) -> Any:
        return super().reset(seed=int(np.random.default_rng().integers(2**31)))


class Stuck(DispatchEnv):
    """reset() without a seed begins the same episode again."""

    def reset(self, *, seed: int | None = None, **options: Any) -> Any:
        return super().reset(seed=self._seed if seed is None else seed)


class Shaped(DispatchEnv):
    """Rewards are not what their terms say."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, reward + 0.01, *rest


class Forgetful(DispatchEnv):
    """What accrued before the third step is not paid."""

    def _info(self) -> Any:
        info = super()._info()
        if self.batch.episodes["n_steps"][0] == 3:
            info["terms"]["latency"] = 0.0
        return info


class Rushed(DispatchEnv):
    """The time between decisions is too short."""

    def _info(self) -> Any:
        info = super()._info()
        return info | {"elapsed_s": info["elapsed_s"] * 0.9}


class Endless(DispatchEnv):
    """It may be stepped on after its end."""

    def step(self, action: Any) -> Any:
        if self._episode >= 0 and self.batch.is_ended(0):
            return self._observation(), 0.0, True, False, self._info()
        return super().step(action)


class Truncating(DispatchEnv):
    """A drained episode is truncated."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, False, terminated or truncated, info


class Sharing(DispatchEnv):
    """Copies have the simulation in common."""

    def __deepcopy__(self, memo: Any) -> Any:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin


BROKEN: dict[Broken, str] = {
    OneStepLate: "A seed gives|Observations are float32",
    Wide: "not in its space",
    Infinite: "not finite",
    Rounding: r"is taken; expected ValueError",
    Spoiling: "and changes the state",
    Forgiving: "counted",
    Generous: "is masked, and taken",
    Unseeded: "twice",
    Stuck: "play the same trace",
    Shaped: "sum of rewards",
    Forgetful: "sum of latency",
    Rushed: "elapsed_s|sum of latency",
    Endless: "expected ResetNeeded",
    Truncating: "terminated = False",
    Sharing: "step|differs",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_broken_environment_is_found_out(broken):
    """And the message says how it is seen again."""
    # pull, one seat, crashes: much is masked
    cluster = {
        "instances": 3,
        "max_num_seqs": 2,
        "max_local_waiting": 1,
        "faults": [{"kind": "crash", "instance": 1, "at_s": 0.0, "duration_s": 4.0}],
    }
    arguments = {"episode_requests": 30, "rate_per_s": 9.0, "cluster": cluster, "tier_mix": None}
    make = functools.partial(broken)
    with pytest.raises(AssertionError, match=BROKEN[broken]) as error:
        check_env(make, seeds=[5], **arguments)
    assert "again: check_env(" in str(error.value)
    assert "rate_per_s=9.0" in str(error.value)


def test_what_is_no_environment_of_ours_is_refused():
    with pytest.raises(ValueError, match="must be one of servegym's"):
        check_env("CartPole-v1")
    with pytest.raises(ValueError, match="seeds = \\[\\]"):
        check_env("servegym/Serve-v0", seeds=[])
    with pytest.raises(ValueError, match="is made already"):
        check_env(gymnasium.make("servegym/Serve-v0"), load=0.5)
