"""Far beyond what a cluster sustains: observations stay in bounds, rewards finite."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from random_arguments import IDS, plain_arguments

from servegym.baselines.features import LIMIT
from servegym.testing.playing import legal_action

OVERLOAD = 10.0  # times what the cluster sustains


def play_overloaded(env_id: str, n_steps: int, **arguments: Any) -> int:
    """Play n steps at random; assert that all is in bounds; return the longest queue that was seen, in requests."""
    given = plain_arguments(env_id, rate_per_s=None, load=OVERLOAD, flatten=True, horizon_s=None)
    env = gymnasium.make(env_id, disable_env_checker=True, **given | arguments)
    inner: Any = env.unwrapped
    observation, _ = env.reset(seed=0)
    rng, longest = np.random.default_rng(0), 0
    for step in range(n_steps):
        observation, reward, terminated, truncated, info = env.step(legal_action(env, rng))
        assert observation.dtype == np.float32
        assert np.isfinite(observation).all()
        assert observation.min() >= 0.0
        assert observation.max() <= LIMIT
        assert np.isfinite(float(reward))
        assert all(np.isfinite(value) for value in info["terms"].values())
        if step % 64 == 0:
            state = inner.simulation.state
            longest = max(
                longest, int(state.instances["n_waiting"].sum() + state.queues["n_waiting"].sum())
            )
        if terminated or truncated:
            env.reset()
    return longest


@pytest.mark.parametrize("env_id", IDS)
def test_case_27_ten_times_overload(env_id):
    """CASES 27: unbounded features, rewards and queues overflow where training goes wrong first."""
    tight = {"instances": 3, "kv_blocks": 700, "max_num_seqs": 16, "tiers": 3}
    longest = play_overloaded(
        env_id, 1500, episode_requests=1500, cluster=tight, tier_mix=[0.4, 0.3, 0.3]
    )
    assert longest > 300


@pytest.mark.slow
@pytest.mark.parametrize("env_id", IDS)
def test_case_27_ten_times_overload_for_100_000_steps(env_id):
    """CASES 27: the same for 100,000 steps."""
    assert play_overloaded(env_id, 100_000, episode_requests=100_000) > 300
