"""gymnasium's and Stable-Baselines3's own checkers: every id, and random arguments, without a warning."""

from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from random_arguments import IDS, plain_arguments, random_arguments

pytestmark = pytest.mark.filterwarnings("error")
NO_SB3 = "Stable-Baselines3 is an optional extra (rl)"


def first_steps_on(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments whose first step is not the last: gymnasium wants that it does not truncate."""
    return {name: value for name, value in arguments.items() if name != "horizon_s"}


@pytest.mark.parametrize("env_id", IDS)
def test_case_27_gymnasium_finds_nothing(env_id, monkeypatch):
    """CASES 27: its checker without warnings, all render modes, too."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    check_env(gymnasium.make(env_id, **plain_arguments(env_id)).unwrapped)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("env_id", IDS)
def test_case_27_gymnasium_finds_nothing_with_random_arguments(env_id, seed):
    """CASES 27: the same, whatever the arguments."""
    arguments = first_steps_on(random_arguments(env_id, seed + 200))
    check_env(gymnasium.make(env_id, **arguments).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("seed", [None, *range(6)])
@pytest.mark.parametrize("env_id", IDS)
def test_case_27_stable_baselines3_finds_nothing(env_id, seed):
    """CASES 27: the same of its checker, observations in parts, in one vector or with masks."""
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason=NO_SB3)
    arguments = plain_arguments(env_id) if seed is None else random_arguments(env_id, seed + 300)
    checker.check_env(gymnasium.make(env_id, **first_steps_on(arguments)))


@pytest.mark.parametrize("env_id", IDS)
def test_case_27_masks_among_observations_are_taken(env_id):
    """CASES 27: there is nothing to warn of with a mask in the Dict either."""
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason=NO_SB3)
    checker.check_env(gymnasium.make(env_id, **plain_arguments(env_id, mask_in_observation=True)))


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
