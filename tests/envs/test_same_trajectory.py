"""One seed, one trajectory: whoever steps the environments, in whatever process."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from random_arguments import IDS, Maker, plain_arguments

NO_SB3 = "Stable-Baselines3 is an optional extra (rl)"
N, SEED = 2, 17
ARGUMENTS: dict[str, Any] = {
    "episode_requests": 25,
    "tier_mix": [0.5, 0.5],
    "flatten": True,
    "cluster": {"instances": 3, "tiers": 2, "max_num_seqs": 4, "metrics_interval_s": 0.1},
}
SERVE = "servegym/Serve-v0"


def arguments_of(env_id: str) -> dict[str, Any]:
    return plain_arguments(env_id, **ARGUMENTS)


def action_at(space: Any, mask: np.ndarray, step: int) -> Any:
    """Return a legal action that depends on the mask and the number of the step alone."""
    if isinstance(space, gymnasium.spaces.Box):
        return (space.low + (space.high - space.low) * ((step % 5) / 5)).astype(np.float32)
    legal = np.flatnonzero(mask)
    return int(legal[(7 * step) % len(legal)])


class Digest:
    """A hash over what one sub-environment showed in its first two episodes."""

    def __init__(self) -> None:
        self.hash, self.n_steps, self.n_ends = hashlib.sha256(), 0, 0

    def add(self, observation: Any, reward: float, is_over: bool) -> None:
        """Take in one step; rewards as float32, which is all that SB3 keeps."""
        if self.n_ends >= 2:
            return
        self.hash.update(np.asarray(observation).tobytes())
        self.hash.update(np.float32(reward).tobytes())
        self.n_steps, self.n_ends = self.n_steps + 1, self.n_ends + is_over

    def value(self) -> tuple[str, int]:
        """Return the hash and the number of steps."""
        return self.hash.hexdigest(), self.n_steps


def of_single(env_id: str) -> list[tuple[str, int]]:
    """Return the digests of N single environments with seeds SEED, SEED + 1, ..."""
    found = []
    for e in range(N):
        env, digest = gymnasium.make(env_id, **arguments_of(env_id)), Digest()
        for seed in (SEED + e, None):
            _, info = env.reset(seed=seed)
            step, is_over = 0, False
            while not is_over:
                action = action_at(env.action_space, info["action_mask"], step)
                observation, reward, terminated, truncated, info = env.step(action)
                is_over = terminated or truncated
                digest.add(observation, float(reward), is_over)
                step += 1
        found.append(digest.value())
    return found


def of_vector(env: VectorEnv) -> list[tuple[str, int]]:
    """Return the digests of a vector with NEXT_STEP autoreset."""
    digests, steps = [Digest() for _ in range(N)], [0] * N
    _, infos = env.reset(seed=SEED)
    over = np.zeros(N, bool)
    while min(digest.n_ends for digest in digests) < 2:
        mask = infos["action_mask"]
        actions = [action_at(env.single_action_space, mask[e], steps[e]) for e in range(N)]
        observations, rewards, terminated, truncated, infos = env.step(np.array(actions))
        ended = terminated | truncated
        for e in range(N):
            if over[e]:  # this step began the next episode
                steps[e] = 0
                continue
            digests[e].add(observations[e], rewards[e], bool(ended[e]))
            steps[e] += 1
        over = ended
    env.close()
    return [digest.value() for digest in digests]


def of_sb3(env: Any) -> list[tuple[str, int]]:
    """Return the digests of a VecEnv of Stable-Baselines3."""
    digests, steps = [Digest() for _ in range(N)], [0] * N
    env.seed(SEED)
    env.reset()
    while min(digest.n_ends for digest in digests) < 2:
        masks = env.env_method("action_masks")
        actions = [action_at(env.action_space, masks[e], steps[e]) for e in range(N)]
        observations, rewards, dones, infos = env.step(np.array(actions))
        for e in range(N):
            last = infos[e]["terminal_observation"] if dones[e] else observations[e]
            digests[e].add(last, rewards[e], bool(dones[e]))
            steps[e] = 0 if dones[e] else steps[e] + 1
    env.close()
    return [digest.value() for digest in digests]


def makers(env_id: str) -> list[Maker]:
    return [Maker(env_id, arguments_of(env_id))] * N


@pytest.mark.parametrize("env_id", IDS)
def test_case_21_side_by_side_and_native_vectors_give_the_trajectory_of_the_single(env_id):
    """CASES 21: same seed, same trajectory."""
    expected = of_single(env_id)
    assert all(n_steps > 3 for _, n_steps in expected)
    assert of_vector(SyncVectorEnv(makers(env_id))) == expected
    native = gymnasium.make_vec(
        env_id, num_envs=N, autoreset_mode=AutoresetMode.NEXT_STEP, **arguments_of(env_id)
    )
    assert of_vector(native) == expected


@pytest.mark.parametrize("env_id", IDS)
def test_case_21_dummy_vec_env_and_the_adapter_give_the_trajectory_of_the_single(env_id):
    """CASES 21: SB3's own vector, and ours around the native one."""
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env", reason=NO_SB3)
    from servegym.envs.sb3 import SB3VecEnv

    expected = of_single(env_id)
    assert of_sb3(vec_env.DummyVecEnv(makers(env_id))) == expected
    assert of_sb3(SB3VecEnv(env_id, num_envs=N, **arguments_of(env_id))) == expected


SPAWNED = [SERVE, *(pytest.param(i, marks=pytest.mark.slow) for i in IDS if i != SERVE)]


@pytest.mark.parametrize("env_id", SPAWNED)
def test_case_21_spawned_processes_give_the_trajectory_of_the_single(env_id):
    """CASES 21: with spawn the environments are pickled, and compiled policies have other addresses there."""
    spawned = AsyncVectorEnv(makers(env_id), context="spawn")
    assert of_vector(spawned) == of_single(env_id)


@pytest.mark.parametrize("env_id", SPAWNED)
def test_case_21_subproc_vec_env_gives_the_trajectory_of_the_single(env_id):
    """CASES 21: SB3's processes, spawned."""
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env", reason=NO_SB3)
    spawned = vec_env.SubprocVecEnv(makers(env_id), start_method="spawn")
    assert of_sb3(spawned) == of_single(env_id)


@pytest.mark.parametrize("hash_seed", ["0", pytest.param("4711", marks=pytest.mark.slow)])
def test_case_21_new_process_with_another_hash_seed_gives_the_same_trajectories(hash_seed):
    """CASES 21: nothing may hang on the order of a set, or on what this process has played before."""
    env_ids = IDS if hash_seed != "0" else [SERVE, IDS[-1]]
    home = Path(__file__).parent
    script = (
        f"import sys, json; sys.path[:0] = [{str(home)!r}]\n"
        "import servegym, test_same_trajectory as t\n"
        f"print(json.dumps([t.of_single(i) for i in {env_ids!r}]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [[tuple(each) for each in digests] for digests in json.loads(ran.stdout)]
    assert found == [of_single(env_id) for env_id in env_ids]


@pytest.mark.parametrize("env_id", IDS)
def test_case_21_reset_with_a_seed_and_reset_again_are_a_deterministic_pair(env_id):
    """CASES 21: two different episodes, the same two each time, whatever was played before."""
    arguments = arguments_of(env_id)
    pairs = []
    for n_before in (0, 3):
        env: Any = gymnasium.make(env_id, **arguments).unwrapped
        for _ in range(n_before):
            env.reset()
        hashes = []
        for seed in (SEED, None):
            env.reset(seed=seed)
            hashes.append((env.trace.workload_hash, env.episode_seed))
        pairs.append(hashes)
    assert pairs[0] == pairs[1]
    assert pairs[0][0][0] != pairs[0][1][0]
    assert pairs[0][0][1] != pairs[0][1][1]


def test_episodes_without_a_seed_are_others_every_time():
    traces = set()
    for _ in range(3):
        env: Any = gymnasium.make(SERVE, **ARGUMENTS).unwrapped
        env.reset()
        traces.add(env.trace.workload_hash)
    assert len(traces) == 3
