"""A baseline through an environment is its native run: every request gets the same, to the picosecond."""

from typing import Any

import gymnasium
import numpy as np
import pytest

import servegym
from servegym.envs.actions import action_of, levels_of
from servegym.envs.baseline_policy import BaselinePolicy
from servegym.simulator.policy import policy_names

SEED, N = 5, 150
# What the cluster is like, by name; every baseline plays in all of them that its kind allows.
CLUSTERS = {
    "default": {"instances": 3},
    "tight": {"instances": 3, "kv_blocks": 900, "max_num_seqs": 24, "tiers": 3},
    "stale": {"instances": 4, "metrics_interval_s": 0.5, "routers": 3, "tiers": 2},
    "static": {"instances": 2, "engine": "static", "batch_size": 8},
    "troubled": {
        "instances": 3,
        "tiers": 2,
        "faults": [
            {"kind": "crash", "instance": 1, "at_s": 2.0, "duration_s": 3.0},
            {"kind": "slow", "instance": 0, "at_s": 1.0, "duration_s": 5.0},
        ],
        "timeout_s": 40.0,
        "client_retries": 1,
    },
    "sarathi": {"instances": 2, "engine": "sarathi", "max_num_batched_tokens": 512, "tiers": 4},
}


def shipped(kind: str) -> list[str]:
    """Return the names of the package's policies of a kind, not those that only tests register."""
    return [name for name in policy_names(kind) if not name.startswith("test-")]


def played(kind: str, cluster: dict, baseline: str, **arguments):
    """Return the environment after an episode that a baseline played, and the records of its requests."""
    env: Any = gymnasium.make(
        f"servegym/{kind}-v0",
        cluster=cluster,
        episode_requests=N,
        load=1.1,
        tier_mix=[1 / cluster.get("tiers", 1)] * cluster.get("tiers", 1),
        **arguments,
    ).unwrapped
    env.reset(seed=SEED)
    policy = BaselinePolicy(baseline, env)
    is_over = False
    while not is_over:
        action, _ = policy.predict()
        _, _, terminated, truncated, info = env.step(action)
        assert not info["illegal_action"]
        is_over = terminated or truncated
    return env, env.result().records


def assert_native(env, records: np.ndarray, system: str, cluster: dict, **options) -> None:
    """Assert that the episode is what the system gives natively on the same trace."""
    native = servegym.simulate(
        env.trace,
        system=system,
        seed=env.episode_seed,
        horizon_s=env.options.horizon_s,
        **cluster | options,
    )
    assert len(records) == len(native.records)
    for field in records.dtype.names or ():
        np.testing.assert_array_equal(records[field], native.records[field], err_msg=field)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("baseline", shipped("dispatch"))
def test_every_dispatch_baseline_is_its_native_run(baseline, cluster):
    env, records = played("Dispatch", CLUSTERS[cluster], baseline, system=baseline)
    assert_native(env, records, baseline, CLUSTERS[cluster])


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("baseline", shipped("admission"))
def test_every_admission_baseline_is_its_native_run(baseline, cluster):
    env, records = played("Admission", CLUSTERS[cluster], baseline)
    assert_native(env, records, "least-requests", CLUSTERS[cluster], admission=baseline)


@pytest.mark.parametrize("order", ["fcfs", "priority", "sjf", "aging"])
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("baseline", [*shipped("queue"), "least-requests"])
def test_every_queue_baseline_is_its_native_run(baseline, cluster, order):
    cluster = CLUSTERS[cluster] | {"order": order}
    env, records = played("Ordering", cluster, baseline)
    queue = None if baseline == "least-requests" else baseline
    assert_native(env, records, "least-requests", cluster, queue=queue, max_local_waiting=0)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("queue", [*shipped("queue"), None])
@pytest.mark.parametrize("dispatch", ["power-of-two", "least-requests", "block", "n-tier"])
def test_every_pair_of_queue_and_dispatch_is_its_native_run_in_serve(dispatch, queue, cluster):
    system = dispatch if queue is None else f"{dispatch}:queue={queue}"
    if dispatch == "n-tier":
        system = system.replace("n-tier", "n-tier:migration=none").replace("none:", "none,")
    env, records = played("Serve", CLUSTERS[cluster], system, system=system)
    assert_native(env, records, system, CLUSTERS[cluster], max_local_waiting=0)


@pytest.mark.parametrize("cluster", ["default", "tight", "troubled", "sarathi"])
@pytest.mark.parametrize("baseline", shipped("migration"))
def test_every_migration_baseline_is_its_native_run(baseline, cluster):
    cluster = CLUSTERS[cluster] | {"order": "priority"}
    arguments = {"rule": baseline, "moves_per_tick": 8, "control_interval_s": 0.25}
    env, records = played("Migration", cluster, baseline, **arguments)
    options = {"migration": baseline, "rebalance_interval_s": 0.25}
    assert_native(env, records, "least-requests", cluster, **options)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("baseline", shipped("scaling"))
def test_every_scaling_baseline_is_its_native_run(baseline, cluster):
    cluster = CLUSTERS[cluster] | {"max_instances": 6, "startup_delay_s": 1.0}
    env, records = played("Scaling", cluster, baseline, control_interval_s=0.5)
    options = {"scaling": baseline, "scaling_interval_s": 0.5}
    assert_native(env, records, "least-requests", cluster, **options)


@pytest.mark.parametrize("cluster", ["default", "tight", "stale", "troubled"])
def test_constant_headroom_is_the_native_run_with_these_parameters(cluster):
    system = "n-tier:peak=.3,decay=2"
    env, records = played("Headroom", CLUSTERS[cluster], system, system="n-tier")
    assert_native(env, records, system, CLUSTERS[cluster])


def test_headroom_of_a_few_decimals_is_met_exactly():
    np.testing.assert_array_equal(action_of([0.2, 2.5]), np.array([-0.2, -0.5], np.float32))
    np.testing.assert_array_equal(levels_of(np.array([[-1, -1], [1, 1]])), [[0, 0], [0.5, 10]])
    for k in range(501):
        wanted = [k / 1000, k / 50]
        assert levels_of(action_of(wanted)).tolist() == wanted
    with pytest.raises(ValueError, match=r"peak = 0.6; Headroom-v0 sets 0 .. 0.5"):
        action_of([0.6, 1.0])


def test_a_second_episode_begins_the_baseline_anew():
    env, _ = played("Dispatch", CLUSTERS["default"], "random")
    policy = BaselinePolicy("random", env)
    for _ in range(2):
        env.reset()
        is_over = False
        while not is_over:
            _, _, terminated, truncated, _ = env.step(policy.predict()[0])
            is_over = terminated or truncated
        assert_native(env, env.result().records, "random", CLUSTERS["default"])


def test_a_restored_episode_begins_the_baseline_anew():
    """Also one from before the policy, which plays futures, was there; its forks play on alike."""
    env: Any = gymnasium.make("servegym/Dispatch-v0", episode_requests=N).unwrapped
    env.reset(seed=SEED)
    start = env.snapshot()
    for baseline in ("block", "random"):
        policy, played = BaselinePolicy(baseline, env), []
        for _ in range(3):
            env.restore(start)
            actions = [int(policy.predict()[0])]
            while len(actions) < 20:
                env.step(actions[-1])
                actions.append(int(policy.predict()[0]))
            played.append(actions)
        assert played[0] == played[1] == played[2]


def test_a_vector_environment_is_played_sub_environment_by_sub_environment():
    env: Any = gymnasium.make_vec(
        "servegym/Dispatch-v0", num_envs=3, episode_requests=N, record=True
    )
    observation, _ = env.reset(seed=SEED)
    policy = BaselinePolicy("power-of-two", env)
    while len(env.unwrapped.results()) < 3:
        actions, _ = policy.predict(observation)
        observation, *_ = env.step(actions)
    for result in env.unwrapped.results():
        native = servegym.simulate(
            result.trace, system="power-of-two", seed=result.seed, horizon_s=600.0
        )
        np.testing.assert_array_equal(result.records, native.records)


def test_what_if_policy_plays_on_from_a_snapshot_that_is_older_than_it():
    """Nobody could ask what would happen when the snapshot was taken: that part of the state is made room for."""
    env: Any = gymnasium.make("servegym/Dispatch-v0", episode_requests=20, rate_per_s=20.0)
    env = env.unwrapped
    env.reset(seed=SEED)
    start = env.snapshot()
    policy = BaselinePolicy("block", env)
    expected = [env.step(policy.predict()[0])[1] for _ in range(5)]
    env.restore(start)
    assert [env.step(policy.predict()[0])[1] for _ in range(5)] == expected


def test_what_is_asked_for_must_be_something_that_the_agent_decides():
    env = gymnasium.make("servegym/Admission-v0", episode_requests=N)
    with pytest.raises(ValueError, match="'least-requests' has no admission policy; there are"):
        BaselinePolicy("least-requests", env)
    with pytest.raises(ValueError, match="queue-cap: unknown parameter 'x'"):
        BaselinePolicy("queue-cap:x=1", env)
