"""gymnasium's and Stable-Baselines3's own checkers: every id, and random arguments, without a warning."""

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from random_arguments import IDS, plain_arguments, random_arguments

pytestmark = pytest.mark.filterwarnings("error")
*DISCRETE, HEADROOM = IDS
NO_SB3 = "Stable-Baselines3 is an optional extra (rl)"


def first_steps_on(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments whose first step is not the last: gymnasium wants that it does not truncate."""
    return {name: value for name, value in arguments.items() if name != "horizon_s"}


@pytest.mark.parametrize("env_id", DISCRETE)
def test_case_27_gymnasium_finds_nothing(env_id, monkeypatch):
    """CASES 27: its checker without warnings, all render modes, too."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    check_env(gymnasium.make(env_id, **plain_arguments(env_id)).unwrapped)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("env_id", DISCRETE)
def test_case_27_gymnasium_finds_nothing_with_random_arguments(env_id, seed):
    """CASES 27: the same, whatever the arguments."""
    arguments = first_steps_on(random_arguments(env_id, seed + 200))
    check_env(gymnasium.make(env_id, **arguments).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("seed", [None, *range(6)])
def test_case_27_gymnasium_says_only_that_headroom_is_not_symmetric(seed, monkeypatch):
    """CASES 27: peak and decay in their own units, 0 to .5 and 0 to 10, are what the papers speak of."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    arguments = (
        plain_arguments(HEADROOM) if seed is None else random_arguments(HEADROOM, seed + 200)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = gymnasium.make(HEADROOM, disable_env_checker=True, **first_steps_on(arguments))
        check_env(env.unwrapped, skip_render_check=seed is not None)
    assert len(caught) > 0
    assert all("symmetric and normalized space" in str(each.message) for each in caught)


def symmetric(env: gymnasium.Env) -> gymnasium.Env:
    """Return the environment with Box actions in [-1, 1], as Stable-Baselines3 asks for."""
    if isinstance(env.action_space, gymnasium.spaces.Box):
        ones = np.ones(2, np.float32)
        return gymnasium.wrappers.RescaleAction(env.unwrapped, -ones, ones)
    return env


@pytest.mark.parametrize("seed", [None, *range(6)])
@pytest.mark.parametrize("env_id", IDS)
def test_case_27_stable_baselines3_finds_nothing(env_id, seed):
    """CASES 27: flat observations; Headroom's actions rescaled, since SB3 wants [-1, 1] of any Box."""
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason=NO_SB3)
    arguments = plain_arguments(env_id) if seed is None else random_arguments(env_id, seed + 300)
    arguments = first_steps_on(arguments) | {"flatten": True, "mask_in_observation": False}
    checker.check_env(symmetric(gymnasium.make(env_id, **arguments)))


@pytest.mark.parametrize("env_id", IDS)
def test_case_27_stable_baselines3_says_only_that_a_matrix_is_no_vector(env_id):
    """CASES 27: rows of instances and of queues in a Dict. MultiInputPolicy flattens them, yet SB3 warns."""
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason=NO_SB3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checker.check_env(symmetric(gymnasium.make(env_id, **plain_arguments(env_id))))
    said = [str(each.message).split(" has an unconventional shape")[0] for each in caught]
    assert said == ["Your observation instances", "Your observation queues"]


@pytest.mark.parametrize("env_id", IDS)
def test_case_27_masks_among_observations_are_taken(env_id):
    """CASES 27: without the two matrices there is nothing to warn of, a mask in the Dict or not."""
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason=NO_SB3)
    features = {"instances": [], "queues": []}
    arguments = plain_arguments(env_id, features=features, mask_in_observation=True)
    checker.check_env(symmetric(gymnasium.make(env_id, **arguments)))


@pytest.mark.parametrize("env_id", IDS)
def test_data_is_equivalent_after_a_json_round_trip_of_the_spec(env_id):
    """EnvSpec.to_json: whoever gets the text makes the same environment."""
    for arguments in (
        plain_arguments(env_id),
        *(random_arguments(env_id, s + 400) for s in range(3)),
    ):
        env = gymnasium.make(env_id, **arguments)
        assert env.spec is not None
        spec = EnvSpec.from_json(env.spec.to_json())
        twin = gymnasium.make(spec)
        assert twin.spec == env.spec
        assert_same_trajectory(env, twin)


def assert_same_trajectory(env: gymnasium.Env, twin: gymnasium.Env) -> None:
    from servegym.testing.playing import check_same, play

    check_same(play(env, 3, 100), play(twin, 3, 100), "the environment and that of its spec")


@pytest.mark.parametrize("env_id", IDS)
def test_make_vec_makes_the_native_vector_without_a_warning(env_id):
    env = gymnasium.make_vec(env_id, num_envs=2, **plain_arguments(env_id))
    assert type(env.unwrapped).__name__.endswith("VectorEnv")
    assert type(env.unwrapped).__module__.startswith("servegym.envs.")
    env.reset(seed=0)
    env.close()


def test_random_arguments_are_taken_by_every_id():
    """That the tests above see what they are meant to: each argument is drawn somewhere."""
    seen = set()
    for env_id in IDS:
        for seed in range(200, 206):
            given = random_arguments(env_id, seed)
            seen |= set(given) | set(given["cluster"])
    wanted = {"tier_mix", "horizon_s", "slo", "features", "oracle", "fixed", "flatten",
              "mask_in_observation", "moves_per_tick", "fallback", "metrics_interval_s", "faults",
              "timeout_s", "profile", "admission", "migration", "scaling", "queue"}  # fmt: skip
    assert wanted <= seen
