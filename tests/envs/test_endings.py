"""How episodes end: a drained trace terminates, a time limit truncates, and what was last seen is there."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from flat_profile import FLAT
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from random_arguments import IDS, plain_arguments

from servegym.simulator.config import ClusterConfig
from servegym.simulator.errors import NoProgressError
from servegym.testing.playing import is_same, legal_action
from servegym.traces import Trace

ONE_SEAT = ClusterConfig(instances=1, profile=FLAT, max_num_seqs=1)
MS = 1e-3


def last_step(env: gymnasium.Env, seed: int = 0) -> tuple[Any, ...]:
    """Play an episode at random; return its last step."""
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    while True:
        shown = env.step(legal_action(env, rng))
        if shown[2] or shown[3]:
            return shown


@pytest.mark.parametrize("env_id", IDS)
def test_case_23_drained_trace_terminates_and_horizon_truncates(env_id):
    """CASES 23: an algorithm bootstraps from a truncated end, not from a terminated one."""
    drained = last_step(gymnasium.make(env_id, **plain_arguments(env_id)))
    assert (drained[2], drained[3]) == (True, False)
    cut = last_step(gymnasium.make(env_id, **plain_arguments(env_id, horizon_s=1.5)))
    assert (cut[2], cut[3]) == (False, True)


@pytest.mark.parametrize("env_id", IDS)
def test_case_23_horizon_and_time_limit_wrapper_agree_in_form(env_id):
    """CASES 23: types, keys and spaces of the last step are the same, whoever cut the episode off."""
    own = gymnasium.make(env_id, **plain_arguments(env_id, horizon_s=1.5))
    wrapped = gymnasium.make(env_id, max_episode_steps=2, **plain_arguments(env_id))
    ends = last_step(own), last_step(wrapped)
    for env, (observation, reward, terminated, truncated, info) in zip(
        (own, wrapped), ends, strict=True
    ):
        assert env.observation_space.contains(observation)
        assert (terminated, truncated) == (False, True)
        assert type(truncated) is bool
        assert type(terminated) is bool
        assert type(reward) is float
        assert np.isfinite(reward)
        assert info["action_mask"].any()
    assert ends[0][4].keys() == ends[1][4].keys()
    with pytest.raises(ResetNeeded):
        own.step(own.action_space.sample())


def drained_at(horizon_ms: float | None, env_id: str = "servegym/Dispatch-v0") -> tuple[Any, ...]:
    """Return the last step of two requests of two tokens, one seat, 10 ms an iteration: they end at 20 and 40 ms."""
    trace = Trace([0.0, 0.005], [16, 16], [2, 2])
    horizon_s = None if horizon_ms is None else horizon_ms * MS
    return last_step(gymnasium.make(env_id, workload=trace, cluster=ONE_SEAT, horizon_s=horizon_s))


def test_case_23_drained_at_the_horizon_terminates():
    """CASES 23: the last request ends at 40 ms; a horizon there cuts nothing off, one a picosecond before does."""
    elapsed = {}
    for horizon_ms, is_drained in (
        (None, True),
        (100.0, True),
        (40.0, True),
        (40 - 1e-9, False),
        (30.0, False),
    ):
        *_, terminated, truncated, info = drained_at(horizon_ms)
        assert (terminated, truncated) == (is_drained, not is_drained), horizon_ms
        elapsed[horizon_ms] = info["elapsed_s"]
    # since r1 was asked about at 5 ms: to the last end, not to the horizon behind it
    assert elapsed[None] == elapsed[100.0] == elapsed[40.0] == pytest.approx(35 * MS)
    assert elapsed[30.0] == pytest.approx(25 * MS)


def test_case_23_trace_that_goes_on_behind_the_horizon_truncates():
    """CASES 23: all that has arrived is served, but the trace is not at its end."""
    trace = Trace([0.0, 1.0], [16, 16], [2, 2])
    env = gymnasium.make("servegym/Dispatch-v0", workload=trace, cluster=ONE_SEAT, horizon_s=1.0)
    _, _, terminated, truncated, info = last_step(env)
    assert (terminated, truncated) == (False, True)
    assert info["elapsed_s"] == pytest.approx(1.0)
    assert len(env.unwrapped.result().records) == 1  # pyright: ignore


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("horizon_s", [600.0, 1.5])
def test_case_23_final_observation_is_available_in_the_vector(env_id, horizon_s, mode):
    """CASES 23: it is what the single environment shows last, with its info."""
    arguments = plain_arguments(env_id, horizon_s=horizon_s, episode_requests=12)
    single, vector = (
        gymnasium.make(env_id, **arguments),
        gymnasium.make_vec(env_id, num_envs=2, autoreset_mode=mode, **arguments),
    )
    vector.reset(seed=4)
    _, info = single.reset(seed=4)
    while True:
        space: Any = single.action_space
        is_box = isinstance(space, gymnasium.spaces.Box)
        action = space.high if is_box else info["action_mask"].argmax()
        expected, _, terminated, truncated, info = single.step(action)
        shown, _, ends, cuts, infos = vector.step(np.stack([action, action]))
        assert (ends[0], cuts[0]) == (terminated, truncated)
        if terminated or truncated:
            break
        info_mask = infos["action_mask"][0]
        assert is_same(info_mask, info["action_mask"])
    final = (
        infos["final_obs"][0]
        if mode == AutoresetMode.SAME_STEP
        else {k: v[0] for k, v in shown.items()}
    )
    assert is_same(final, expected)
    final_info = infos["final_info"] if mode == AutoresetMode.SAME_STEP else infos
    assert final_info["elapsed_s"][0] == info["elapsed_s"]


def test_episode_that_never_asks_shows_its_end_at_once_and_pays_with_the_first_step():
    """Every request is too large: all are rejected at their arrival. Each costs the longest E2E of its SLO:

    1 s + .1 s * (output_tokens - 1) = 1.1 s for two tokens; two of them.
    """
    trace = Trace([0.0, 0.005], [100, 100], [2, 2])
    config = ClusterConfig(instances=1, profile=FLAT, kv_blocks=3)
    for env_id in IDS[:4]:
        env = gymnasium.make(env_id, workload=trace, cluster=config)
        observation, info = env.reset(seed=0)
        assert info["action_mask"].all()
        assert env.observation_space.contains(observation)
        _, reward, terminated, truncated, info = env.step(0)
        assert (terminated, truncated) == (True, False)
        assert info["illegal_action"] is False
        assert info["terms"]["latency"] == pytest.approx(-2.2)
        assert reward == pytest.approx(-2.0 if env_id == "servegym/Admission-v0" else -2.2)


@pytest.mark.parametrize("env_id", IDS[4:])
def test_ticks_of_an_episode_without_work_do_not_go_on_for_ever(env_id):
    trace = Trace([0.0, 0.5], [100, 100], [2, 2])
    config = ClusterConfig(instances=2, profile=FLAT, kv_blocks=3)
    arguments = plain_arguments(env_id) | {"rate_per_s": None, "workload": trace, "cluster": config}
    env = gymnasium.make(env_id, control_interval_s=0.1, **arguments)
    env.reset(seed=0)
    n, is_over, terminated = 0, False, False
    while not is_over:
        *_, terminated, truncated, _ = env.step(legal_action(env, np.random.default_rng(0)))
        is_over, n = terminated or truncated, n + 1
        assert n < 20
    assert terminated


# Agents that never give in.


def test_agent_that_waits_for_ever_is_stopped_without_a_horizon():
    """Everything else has ended 60 s before (max_hold_s): NoProgressError names who holds."""
    env = gymnasium.make(
        "servegym/Serve-v0", **plain_arguments("servegym/Serve-v0", horizon_s=None)
    )
    _, info = env.reset(seed=0)
    with pytest.raises(NoProgressError, match="agent"):
        for _ in range(100_000):
            _, _, terminated, _, info = env.step(len(info["action_mask"]) - 1)
            assert not terminated


@pytest.mark.parametrize(
    ("env_id", "action"), [("servegym/Serve-v0", -1), ("servegym/Admission-v0", 1)]
)
def test_agent_that_waits_for_ever_is_cut_off_by_the_horizon(env_id, action):
    """100 s, longer than max_hold_s: all requests are unfinished, and have waited to the horizon."""
    env: Any = gymnasium.make(env_id, **plain_arguments(env_id, horizon_s=100.0)).unwrapped
    _, info = env.reset(seed=0)
    truncated, n = False, 0
    while not truncated:
        last = len(info["action_mask"]) - 1
        _, _, terminated, truncated, info = env.step(last if action < 0 else action)
        assert not terminated
        n += 1
    table = env.result().requests
    assert (table["status"] == "unfinished").all()
    expected = (100.0 - table["arrival_s"]).sum()
    assert env.result().total_latency_s == pytest.approx(expected, rel=1e-9)
    assert n < 50_000


def test_last_control_tick_lies_behind_what_int64_can_hold():
    """Ticks at 0 and 5e6 s; the next, at 1e7 s, is later than any instant (9.2e6 s), so the run goes on to its end."""
    trace = Trace([0.0, 6e6, 6.1e6], [16] * 3, [2] * 3)
    env: Any = gymnasium.make(
        "servegym/Headroom-v0",
        workload=trace,
        horizon_s=None,
        control_interval_s=5e6,
        cluster={"tiers": 2},
    )
    env.reset(seed=0)
    *_, terminated, truncated, _ = env.step([0.1, 1.0])
    assert (terminated, truncated) == (False, False)
    *_, terminated, truncated, _ = env.step([0.1, 1.0])
    assert (terminated, truncated) == (True, False)
    assert env.unwrapped.result().summary()["finished"] == 3


def test_migration_ticks_end_before_time_does():
    """The next tick of one at 9.1e6 s, a million seconds later, lies beyond what int64 counts: it wrapped, for ever."""
    trace = Trace([0.0, 9.1e6, 9.15e6], [100] * 3, [10] * 3)
    env = gymnasium.make(
        "servegym/Migration-v0", workload=trace, horizon_s=None, control_interval_s=1e6
    )
    env.reset(seed=0)
    nothing, n_steps, terminated = 16, 0, False
    while not terminated and n_steps < 20:
        *_, terminated, truncated, _ = env.step(nothing)
        assert not truncated
        n_steps += 1
    assert terminated
