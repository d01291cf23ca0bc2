"""The native vector environment is gymnasium's SyncVectorEnv of single environments, bit for bit."""

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import odd_policies  # noqa: F401 registers its policies
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from random_arguments import IDS, plain_arguments, random_arguments

from servegym.envs.episode import TABLE
from servegym.simulator.calls import CENTRE, COPIES, CORE
from servegym.simulator.state import LINK_WORDS
from servegym.testing.playing import is_same

MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
N, SEED, STEPS = 2, 40, 2000
# Short episodes, so that 2,000 steps see many ends, in a cluster with a bit of everything.
BUSY = {
    "episode_requests": 30,
    "rate_per_s": 12.0,
    "tier_mix": [0.3, 0.3, 0.4],
    "cluster": {
        "instances": 3,
        "kv_blocks": 400,
        "max_num_seqs": 6,
        "tiers": 3,
        "metrics_interval_s": 0.1,
        "routers": 2,
        "faults": [{"kind": "crash", "instance": 0, "at_s": 0.5, "duration_s": 1.0}],
        "timeout_s": 4.0,
        "client_retries": 1,
    },
}


def native(env_id: str, mode: AutoresetMode, n: int = N, **arguments: Any) -> VectorEnv:
    """Return the native vector environment."""
    return gymnasium.make_vec(env_id, num_envs=n, autoreset_mode=mode, **arguments)


def side_by_side(env_id: str, mode: AutoresetMode, n: int = N, **arguments: Any) -> SyncVectorEnv:
    """Return gymnasium's vector of single environments."""
    return SyncVectorEnv([lambda: gymnasium.make(env_id, **arguments)] * n, autoreset_mode=mode)


def random_actions(rng: np.random.Generator, env: VectorEnv, mask: np.ndarray) -> np.ndarray:
    """Return an action for each sub-environment, one in eight of them perhaps masked."""
    space: Any = env.single_action_space
    n = env.num_envs
    if isinstance(space, gymnasium.spaces.Box):
        return rng.uniform(space.low, space.high, (n, 2)).astype(np.float32)
    legal = [rng.choice(np.flatnonzero(row)) for row in mask]
    anything = rng.integers(space.n, size=n)
    return np.where(rng.random(n) < 0.125, anything, legal).astype(np.int64)


def assert_same_infos(mine: dict, other: dict) -> None:
    """Assert that two stacked infos say the same of whom they speak of."""
    names = {name for name in other if not name.startswith("_")}
    assert {name for name in mine if not name.startswith("_")} == names
    for name in names:
        who = other[f"_{name}"]
        np.testing.assert_array_equal(mine[f"_{name}"], who, err_msg=name)
        if isinstance(other[name], dict):
            assert_same_infos(mine[name], other[name])
        else:
            assert mine[name].dtype == other[name].dtype, name
            assert is_same(list(mine[name][who]), list(other[name][who])), name


def assert_same_steps(mine: VectorEnv, other: VectorEnv, n_steps: int) -> int:
    """Play both with the same actions and assert that they show the same; return how many episodes ended."""
    observation, infos = mine.reset(seed=SEED)
    expected, expected_infos = other.reset(seed=SEED)
    assert is_same(observation, expected)
    assert_same_infos(infos, expected_infos)
    rng, n_ended = np.random.default_rng(1), 0
    for _ in range(n_steps):
        actions = random_actions(rng, mine, infos["action_mask"])
        *shown, infos = mine.step(actions)
        *expected, expected_infos = other.step(actions)
        assert is_same(shown, expected)
        assert_same_infos(infos, expected_infos)
        ended = shown[2] | shown[3]
        n_ended += int(ended.sum())
        if mine.metadata["autoreset_mode"] == AutoresetMode.DISABLED and ended.any():
            observation, infos = mine.reset(options={"reset_mask": ended.copy()})
            expected, expected_infos = other.reset(options={"reset_mask": ended.copy()})
            assert is_same(observation, expected)
            assert_same_infos(infos, expected_infos)
    return n_ended


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", IDS)
def test_case_21_native_vector_is_the_single_environments(env_id, mode):
    """CASES 21: one trajectory, single or vector. Sub-environment i with seed s is the single one with seed s + i."""
    arguments = plain_arguments(env_id, **BUSY)
    envs = native(env_id, mode, **arguments), side_by_side(env_id, mode, **arguments)
    assert assert_same_steps(*envs, STEPS) > 10


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("env_id", IDS)
def test_random_arguments_give_the_single_environments(env_id, seed):
    mode = (*MODES, AutoresetMode.DISABLED)[seed % 3]
    arguments = random_arguments(env_id, seed + 100)
    assert_same_steps(
        native(env_id, mode, **arguments), side_by_side(env_id, mode, **arguments), 60
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("env_id", IDS)
def test_many_random_arguments_give_the_single_environments(env_id, seed):
    mode = (*MODES, AutoresetMode.DISABLED)[seed % 3]
    arguments = random_arguments(env_id, seed + 1000)
    assert_same_steps(
        native(env_id, mode, **arguments), side_by_side(env_id, mode, **arguments), 200
    )


# Episode statistics.


def first_legal(env: VectorEnv, mask: np.ndarray) -> np.ndarray:
    """Return the first legal action of each; of a Box the middle."""
    space: Any = env.single_action_space
    if isinstance(space, gymnasium.spaces.Box):
        return np.stack([(space.low + space.high) / 2] * env.num_envs)
    return mask.argmax(axis=1)


def true_statistics(env_id: str, seed: int, n_episodes: int, **arguments: Any) -> list[tuple]:
    """Return (length, return) of each of the first episodes of a single environment."""
    env = gymnasium.make(env_id, **arguments)
    found = []
    for k in range(n_episodes):
        _, info = env.reset(seed=seed if k == 0 else None)
        length, total, is_over = 0, 0.0, False
        while not is_over:
            space: Any = env.action_space
            is_box = isinstance(space, gymnasium.spaces.Box)
            action = (space.low + space.high) / 2 if is_box else info["action_mask"].argmax()
            _, reward, terminated, truncated, info = env.step(action)
            length, total, is_over = length + 1, total + float(reward), terminated or truncated
        found.append((length, total))
    return found


@pytest.mark.parametrize("mode", [*MODES, AutoresetMode.DISABLED])
@pytest.mark.parametrize("env_id", IDS)
def test_case_24_episode_lengths_and_returns_are_right_in_every_autoreset_mode(env_id, mode):
    """CASES 24: wrappers miscount by one where an environment resets at another step than its metadata say."""
    arguments = plain_arguments(env_id, **BUSY) | {"episode_requests": 12}
    env = RecordEpisodeStatistics(native(env_id, mode, **arguments))
    _, infos = env.reset(seed=SEED)
    found: list[list[tuple]] = [[] for _ in range(N)]
    while min(map(len, found)) < 3:
        _, _, terminated, truncated, infos = env.step(first_legal(env, infos["action_mask"]))
        for e in np.flatnonzero(terminated | truncated):
            assert infos["_episode"][e]
            found[e].append((int(infos["episode"]["l"][e]), float(infos["episode"]["r"][e])))
        if mode == AutoresetMode.DISABLED and (terminated | truncated).any():
            _, more = env.reset(options={"reset_mask": terminated | truncated})
            infos["action_mask"] = more["action_mask"]
    for e, episodes in enumerate(found):
        expected = true_statistics(env_id, SEED + e, 3, **arguments)
        assert [length for length, _ in episodes[:3]] == [length for length, _ in expected]
        np.testing.assert_allclose(
            [total for _, total in episodes[:3]], [total for _, total in expected], rtol=1e-12
        )


@pytest.mark.parametrize("mode", [*MODES, AutoresetMode.DISABLED])
def test_case_24_disabled_refuses_what_has_ended(mode):
    """CASES 24: without autoreset whoever steps on is told so; with it the next episode begins."""
    env = native(
        "servegym/Serve-v0", mode, **plain_arguments("servegym/Serve-v0", episode_requests=5)
    )
    _, infos = env.reset(seed=0)
    ended = np.zeros(N, bool)
    while not ended.any():
        _, _, terminated, truncated, infos = env.step(infos["action_mask"].argmax(axis=1))
        ended = terminated | truncated
    actions = infos["action_mask"].argmax(axis=1)
    if mode == AutoresetMode.DISABLED:
        with pytest.raises(ResetNeeded):
            env.step(actions)
    else:
        env.step(actions)


@pytest.mark.parametrize("env_id", IDS)
def test_case_28_copies_of_a_vector_have_the_same_future(env_id):
    """CASES 28: as for the single one."""
    env = native(env_id, AutoresetMode.NEXT_STEP, **plain_arguments(env_id, **BUSY))
    _, infos = env.reset(seed=3)
    rng = np.random.default_rng(0)
    for _ in range(7):
        *_, infos = env.step(random_actions(rng, env, infos["action_mask"]))
    twins = [env, copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    runs = []
    for twin in twins:
        rng, mask, shown = np.random.default_rng(5), infos["action_mask"], []
        for _ in range(60):
            *step, after = twin.step(random_actions(rng, twin, mask))
            shown.append((step, after))
            mask = after["action_mask"]
        runs.append(shown)
    assert is_same(runs[0], runs[1])
    assert is_same(runs[0], runs[2])


# What a caller may hand over.


def test_reset_mask_begins_only_the_episodes_it_names():
    env_id = "servegym/Dispatch-v0"
    env = native(env_id, AutoresetMode.DISABLED, 3, **plain_arguments(env_id))
    before, infos = env.reset(seed=0)
    for _ in range(5):
        before, *_, infos = env.step(infos["action_mask"].argmax(axis=1))
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    fresh = gymnasium.make(env_id, **plain_arguments(env_id))
    fresh.reset(seed=1)
    expected, _ = fresh.reset()
    for part in before:
        assert is_same(after[part][[0, 2]], before[part][[0, 2]])
        assert is_same(after[part][1], expected[part])


def test_seeds_may_be_given_one_by_one_or_left_out():
    """None leaves a sub-environment's seed as it is; if it has none yet, it draws one of its own."""
    env: Any = native("servegym/Dispatch-v0", AutoresetMode.NEXT_STEP, 4, episode_requests=20)
    env.reset(seed=[7, None, None, 8])
    traces = [env.batch.simulation(e).trace.workload_hash for e in range(4)]
    assert len(set(traces)) == 4
    env.reset(seed=[7, 7, 8, 8])
    again = [env.batch.simulation(e).trace.workload_hash for e in range(4)]
    assert again == [traces[0], traces[0], traces[3], traces[3]]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 0, 0], "expected 2 of shape"),
        ([0.5, 0], "must be a whole number"),
        ([0, 99], "action[1] = 99; must be in 0 .. 3"),
        ([-1, 0], "action[0] = -1; must be in 0 .. 3"),
        (0, "expected 2 of shape"),
        ([[0], [0]], "expected 2 of shape"),
        ([True, False], "must be a whole number"),
        ([np.nan, 0], "must be a whole number"),
    ],
)
def test_case_26_malformed_actions_of_a_vector_change_nothing(actions, message):
    """CASES 26: an error that names the sub-environment, and everybody stands where they stood."""
    env: Any = native(
        "servegym/Dispatch-v0", AutoresetMode.NEXT_STEP, **plain_arguments("servegym/Dispatch-v0")
    )
    env.reset(seed=0)
    arrays = [*env.batch.table, *(a for e in range(N) for a in env.batch.simulation(e).state)]
    before = [np.asarray(array).tobytes() for array in arrays]
    with pytest.raises(ValueError) as error:
        env.step(actions)
    assert message in str(error.value)
    assert [np.asarray(array).tobytes() for array in arrays] == before


def test_case_25_strict_vector_refuses_masked_actions():
    """CASES 25: strict raises, names the sub-environment and changes nothing."""
    env_id = "servegym/Serve-v0"
    env: Any = native(
        env_id, AutoresetMode.NEXT_STEP, strict=True, **plain_arguments(env_id, **BUSY)
    )
    _, infos = env.reset(seed=0)
    actions = infos["action_mask"].argmax(axis=1)
    actions[1] = infos["action_mask"][1].argmin()
    assert infos["action_mask"][1].min() == 0  # two of the three queues are empty
    before = env.batch.episodes.tobytes()
    with pytest.raises(ValueError, match=r"action\[1\]"):
        env.step(actions)
    assert env.batch.episodes.tobytes() == before


def test_fallback_has_the_parameters_of_the_trace_it_acts_in():
    """Instance 3 is down, so the fallback places every request: where the first prompt of its own trace says."""
    crash = {"kind": "crash", "instance": 3, "at_s": 0.0, "duration_s": 1e4}
    env: Any = gymnasium.make_vec(
        "servegym/Dispatch-v0",
        num_envs=4,
        episode_requests=20,
        fallback="test-first-prompt",
        cluster={"instances": 4, "faults": [crash]},
    )
    env.reset(seed=0)
    for _ in range(10):
        env.step([3] * 4)
    chosen = []
    for simulation in env.unwrapped.batch.simulations:
        chosen.append(int(simulation.trace.prompt_tokens[0]) % 3)
        placed = simulation.state.requests["instance"][:10]
        np.testing.assert_array_equal(placed, chosen[-1])
    assert len(set(chosen)) > 1


def test_results_are_kept_on_request():
    env: Any = native(
        "servegym/Dispatch-v0", AutoresetMode.SAME_STEP, episode_requests=6, record=True
    )
    _, infos = env.reset(seed=0)
    totals = np.zeros(N)
    paid = []
    while len(paid) < 5:
        _, rewards, terminated, truncated, infos = env.step(infos["action_mask"].argmax(axis=1))
        totals += rewards
        for e in np.flatnonzero(terminated | truncated):
            paid.append(totals[e])
            totals[e] = 0.0
    assert [-result.total_latency_s for result in env.results()] == pytest.approx(paid, rel=1e-9)


def test_vector_renders_every_sub_environment():
    env: Any = native(
        "servegym/Dispatch-v0", AutoresetMode.NEXT_STEP, episode_requests=6, render_mode="ansi"
    )
    env.reset(seed=0)
    pictures = env.render()
    assert len(pictures) == N
    assert all(isinstance(picture, str) and picture for picture in pictures)


@pytest.mark.parametrize("part", [CORE, CENTRE, COPIES, TABLE])
def test_descriptors_fit_where_they_are_stored(part):
    """numba's descriptor of an array: five words, then shape and strides; what is longer would overwrite memory."""
    assert sum(5 + 2 * array.ndim for array in part.types) <= LINK_WORDS


@pytest.mark.parametrize("bad", [-5, 1.5])
def test_bad_seed_in_a_list_is_named_and_changes_nothing(bad):
    envs: Any = gymnasium.make_vec("servegym/Dispatch-v0", num_envs=2, episode_requests=9)
    envs.reset(seed=3)
    with pytest.raises(ValueError, match=rf"seed\[1\] = {bad}; must be a whole number >= 0"):
        envs.reset(seed=[1, bad])
    envs.reset()
    assert envs.unwrapped._seeds == [3, 4]
