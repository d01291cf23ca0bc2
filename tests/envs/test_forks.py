"""Forks of an episode: in this process and another, of the vector's sub-environments, for search."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from random_arguments import IDS, plain_arguments, random_arguments

from servegym.testing.playing import Played, is_same, legal_action, play, play_on

BUSY: dict[str, Any] = {
    "episode_requests": 40,
    "tier_mix": [0.5, 0.5],
    "cluster": {
        "instances": 3,
        "tiers": 2,
        "max_num_seqs": 4,
        "kv_blocks": 400,
        "metrics_interval_s": 0.1,
        "timeout_s": 5.0,
        "client_retries": 1,
    },
}
GO_ON = """
import pickle, sys
sys.path[:0] = [{home!r}]
import servegym
from servegym.testing.playing import Played, play_on
found = {{}}
for env_id, env in pickle.load(open({path!r}, "rb")).items():
    found[env_id] = play_on(env, Played([({{}}, 0.0, False, False, {{}})]), 1000).steps
pickle.dump(found, open({path!r}, "wb"))
"""


def halfway(env_id: str, n_steps: int = 7, **arguments: Any) -> Any:
    """Return an environment after some steps."""
    env: Any = gymnasium.make(env_id, **plain_arguments(env_id, **arguments)).unwrapped
    play(env, 11, n_steps)
    return env


def future(env: Any) -> Played:
    """Return what an environment shows from now on, to its end."""
    return play_on(env, Played([({}, 0.0, False, False, {})]), 1000)


def test_case_28_pickles_have_the_same_future_in_another_process(tmp_path):
    """CASES 28: compiled policies lie elsewhere there; nothing of an address may be left in a pickle."""
    envs = {env_id: halfway(env_id, **BUSY) for env_id in IDS}
    path = tmp_path / "envs.pickle"
    path.write_bytes(pickle.dumps(envs))
    script = GO_ON.format(home=str(Path(__file__).parent), path=str(path))
    subprocess.run([sys.executable, "-c", script], env=dict(os.environ), check=True)
    found = pickle.loads(path.read_bytes())
    for env_id, env in envs.items():
        expected = future(env)
        assert len(expected.steps) > 2
        assert is_same(expected.steps, found[env_id]), env_id


@pytest.mark.parametrize("env_id", IDS)
def test_case_28_search_over_forks_changes_nothing(env_id):
    """CASES 28: every legal action is tried out in a copy and in place, by snapshot; then all is as it was."""
    env, untouched = halfway(env_id, **BUSY), halfway(env_id, **BUSY)
    rng = np.random.default_rng(0)
    for _ in range(3):
        actions = [legal_action(env, rng) for _ in range(3)]
        start = env.snapshot()
        for action in actions:
            env.restore(start)
            tried = copy.deepcopy(env).step(action)
            assert is_same(tried, env.step(action))
            play_on(env, Played([({}, 0.0, False, False, {})]), 5)
        env.restore(start)
        chosen = actions[0]
        assert is_same(env.step(chosen), untouched.step(chosen))
    assert is_same(future(env).steps, future(untouched).steps)


@pytest.mark.parametrize("env_id", IDS)
def test_case_28_snapshot_of_an_earlier_episode_is_gone_back_to(env_id):
    """CASES 28: over a reset, too; then the next reset() begins the episode that followed then."""
    env = halfway(env_id, **BUSY)
    start = env.snapshot()
    first = future(env).steps
    env.reset()
    following = env.trace.workload_hash
    env.reset(seed=99)
    env.restore(start)
    assert is_same(future(env).steps, first)
    env.reset()
    assert env.trace.workload_hash == following


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("env_id", IDS)
def test_case_28_copy_of_a_copy_after_resets(env_id, seed):
    """CASES 28: from the second episode on a simulation plays in the same arrays again; copies must not."""
    env: Any = gymnasium.make(env_id, **random_arguments(env_id, 700 + seed)).unwrapped
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    env.reset()
    env.reset()
    twin = copy.deepcopy(copy.deepcopy(env))
    for _ in range(3):
        twin.reset()
        twin.step(legal_action(twin, rng))
    fresh: Any = gymnasium.make(env_id, **random_arguments(env_id, 700 + seed)).unwrapped
    fresh.reset(seed=seed)
    fresh.reset()
    fresh.reset()
    assert is_same(future(env).steps, future(fresh).steps)


@pytest.mark.parametrize(
    ("env_id", "arguments", "named"),
    [
        ("servegym/Scaling-v0", {}, "kind = 'scaling'; expected 'admission'"),
        ("servegym/Admission-v0", {"reward": "ttft"}, "reward = 'ttft'; expected 'slo'"),
        ("servegym/Admission-v0", {"horizon_s": 9.0}, "horizon_s = 9.0; expected 600.0"),
        ("servegym/Admission-v0", {"cluster": {"engine": "static"}}, "config = "),
    ],
)
def test_snapshot_of_another_environment_is_refused(env_id, arguments, named):
    """Shapes may agree, what is played does not: nothing has changed then. A copy's snapshot is the same's."""
    env, other = halfway("servegym/Admission-v0"), halfway(env_id, **arguments)
    expected = copy.deepcopy(env).step(0)
    with pytest.raises(ValueError, match="snapshot: " + named):
        env.restore(other.snapshot())
    twin = pickle.loads(pickle.dumps(env))
    env.step(1)
    env.restore(twin.snapshot())
    assert is_same(env.step(0), expected)
