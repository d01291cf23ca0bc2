"""Another fleet than the one that was trained on: flat policies say so."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from random_arguments import IDS, plain_arguments

NO_SB3 = "Stable-Baselines3 is an optional extra (rl)"


def fleet(env_id: str, instances: int, **more: Any) -> gymnasium.Env:
    """Return an environment with so many instances."""
    arguments = plain_arguments(env_id, episode_requests=10, cluster={"instances": instances})
    return gymnasium.make(env_id, **arguments | more)


@pytest.mark.parametrize("env_id", IDS)
def test_case_29_rows_follow_the_fleet_and_features_do_not(env_id):
    """CASES 29: a set policy reads a row an instance, whose columns are the same in any fleet."""
    four, eight = (fleet(env_id, m).observation_space for m in (4, 8))
    shapes: Any = [{k: box.shape for k, box in space.items()} for space in (four, eight)]  # pyright: ignore
    rows = [shape.pop("instances") for shape in shapes]
    assert shapes[0] == shapes[1]
    assert rows[1] == (2 * rows[0][0],) and rows[0][0] % 4 == 0


@pytest.mark.parametrize("env_id", IDS)
def test_case_29_flat_policy_trained_on_4_instances_says_that_8_have_another_shape(env_id):
    """CASES 29: neither predict nor set_env go on with what does not fit, and both sizes are in the message."""
    sb3 = pytest.importorskip("stable_baselines3", reason=NO_SB3)
    four, eight = fleet(env_id, 4, flatten=True), fleet(env_id, 8, flatten=True)
    model = sb3.PPO("MlpPolicy", four, n_steps=8, batch_size=8, device="cpu")
    observation, _ = eight.reset(seed=0)
    n_four, n_eight = (env.observation_space.shape[0] for env in (four, eight))  # pyright: ignore
    with pytest.raises(ValueError, match=rf"\({n_eight},\).*\({n_four},\)"):
        model.predict(observation)
    with pytest.raises(ValueError, match="spaces do not match"):
        model.set_env(eight)


def test_case_29_action_of_a_larger_fleet_is_out_of_range():
    """CASES 29: the environment says what its range is."""
    env = fleet("servegym/Dispatch-v0", 4)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action\[0\] = 7; must be in 0 .. 3"):
        env.step(np.int64(7))


def test_case_29_snapshot_of_another_fleet_is_refused():
    """CASES 29: restoring what was taken elsewhere would leave spaces and state of different sizes."""
    four: Any = fleet("servegym/Dispatch-v0", 4).unwrapped
    eight: Any = fleet("servegym/Dispatch-v0", 8).unwrapped
    four.reset(seed=0)
    eight.reset(seed=0)
    with pytest.raises(ValueError):
        four.restore(eight.snapshot())
