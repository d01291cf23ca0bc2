"""Tests of the instance-set policy in torch, and of the environments and rollouts that it is trained with."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="the extra rl is not installed")
pytest.importorskip("sb3_contrib", reason="the extra rl is not installed")

import gymnasium
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from stable_baselines3 import PPO

from servegym.agents.fleets import FleetVecEnv, group_seed
from servegym.agents.rollouts import PairedRolloutBuffer, paired
from servegym.agents.set_policy import (
    ACCEPTS,
    EXISTS,
    MaskableSetPolicy,
    SetActorCritic,
    SetNetwork,
    SetPolicy,
    rows_of,
    tensors_of,
)
from servegym.baselines.features import N_CLUSTER, N_INSTANCE, N_REQUEST
from servegym.envs.baseline_policy import BaselinePolicy
from servegym.envs.sb3 import SB3VecEnv

TINY: dict[str, Any] = {
    "sizes": (2, 3),
    "workloads": ("azure-conv",),
    "scenarios": ("tight",),
    "replicas": 2,
    "requests": 40,
    "seed": 5,
}


def random_rows(n: int, m: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return n observations of m instances that all accept."""
    generator = torch.Generator().manual_seed(seed)
    instances = torch.rand(n, m, N_INSTANCE, generator=generator)
    instances[:, :, ACCEPTS] = 1.0
    request = torch.rand(n, N_REQUEST, generator=generator)
    return {
        "instances": instances,
        "request": request,
        "cluster": torch.rand(n, N_CLUSTER, generator=generator),
    }


def decided(seed: int = 0) -> SetActorCritic:
    """Return networks whose every weight counts; fresh ones have no linear score."""
    torch.manual_seed(seed)
    networks = SetActorCritic(8)
    for tensor in networks.parameters():
        torch.nn.init.normal_(tensor, std=0.3)
    return networks


def padded(rows: dict[str, torch.Tensor], m: int) -> dict[str, torch.Tensor]:
    """Return observations with rows of zeros up to m instances."""
    instances = rows["instances"]
    n, here, width = instances.shape
    zeros = torch.zeros(n, m - here, width)
    exists = torch.cat([torch.ones(n, here), torch.zeros(n, m - here)], 1)
    return rows | {"instances": torch.cat([instances, zeros], 1), EXISTS: exists}


@pytest.mark.parametrize("m", [1, 4, 64])
def test_instances_in_another_order_have_the_same_logits_and_the_state_the_same_value(m):
    networks, rows = decided(), random_rows(5, m)
    order = torch.randperm(m, generator=torch.Generator().manual_seed(1))
    logits, values = networks(rows)
    again, same = networks(rows | {"instances": rows["instances"][:, order]})
    torch.testing.assert_close(again, logits[:, order], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(same, values, rtol=1e-5, atol=1e-5)


def test_rows_of_padding_change_nothing_and_are_never_chosen():
    networks, few, many = decided(), random_rows(4, 3), random_rows(6, 7, seed=1)
    whole = {
        part: torch.cat([padded(few, 7)[part], padded(many, 7)[part]]) for part in padded(few, 7)
    }
    logits, values = networks(whole)
    torch.testing.assert_close(logits[:4, :3], networks(few)[0])
    torch.testing.assert_close(logits[4:], networks(many)[0])
    torch.testing.assert_close(values, torch.cat([networks(few)[1], networks(many)[1]]))
    assert torch.softmax(logits, 1)[:4, 3:].max() == 0


def test_logit_of_a_hand_worked_network():
    # One hidden unit: h = relu(2 running + prompt - 1), g = relu(h + 3 mean h), logit = g - 10 running * kv_need,
    # the last in units: running * kv_need has .07 * .2.
    network = SetNetwork(1)
    for tensor in network.parameters():
        torch.nn.init.zeros_(tensor)
    with torch.no_grad():
        network.encoder.weight[0, 0] = 2.0
        network.encoder.weight[0, N_INSTANCE + 1] = 1.0
        network.encoder.bias[0] = -1.0
        network.head.weight[0] = torch.tensor([1.0, 3.0])
        network.out.weight[0, 0] = 1.0
        network.skip.weight[0, 2 * N_INSTANCE] = 0.07 * 0.2
    instances, request = torch.zeros(1, 2, N_INSTANCE), torch.zeros(1, N_REQUEST)
    instances[0, :, 0] = torch.tensor([0.5, 1.0])
    request[0, 1], request[0, 3] = 0.5, 4.0
    # h = .5 and 1.5, mean 1; g = 3.5 and 4.5; less 10 * .5 * 4 and 10 * 1 * 4.
    logits = network(instances, request, torch.zeros(1, N_CLUSTER))
    torch.testing.assert_close(logits, torch.tensor([[-16.5, -35.5]]))


def test_an_instance_that_does_not_accept_is_never_sampled():
    networks, rows = decided(), random_rows(2_000, 3)
    rows["instances"][:, 1, ACCEPTS] = 0.0
    probabilities = torch.softmax(networks.forward_actor(rows), 1)
    assert probabilities[:, 1].max() == 0
    assert torch.multinomial(probabilities, 1).ne(1).all()


def test_observations_without_whole_rows_are_refused():
    env = SB3VecEnv("servegym/Dispatch-v0", 1, cluster={"instances": 2})
    with pytest.raises(ValueError, match="needs flatten=False and all 5 features of cluster"):
        PPO(SetPolicy, env)
    env = SB3VecEnv("servegym/Dispatch-v0", 1, flatten=False, features={"instances": ["running"]})
    with pytest.raises(ValueError, match="all 19 features of instances"):
        PPO(SetPolicy, env)


@pytest.mark.parametrize("env_id", ["servegym/Serve-v0", "servegym/Headroom-v0"])
def test_actions_that_are_no_instances_are_refused(env_id):
    env = SB3VecEnv(env_id, 1, flatten=False, cluster={"instances": 2, "tiers": 2})
    with pytest.raises(ValueError, match=r"actions are .*; the set policy chooses one of the inst"):
        PPO(SetPolicy, env, n_steps=2, batch_size=2)


def test_case_29_set_policy_of_4_instances_runs_on_8_and_a_flat_one_says_which_shape_it_wants():
    """Reason: a policy that silently reads another fleet's numbers would be worse than none."""
    four, eight = (
        SB3VecEnv("servegym/Dispatch-v0", 2, flatten=False, cluster={"instances": m})
        for m in (4, 8)
    )
    model = PPO(SetPolicy, four, n_steps=4, batch_size=8, n_epochs=1, seed=0).learn(8)
    policy: Any = model.policy
    logits = policy.mlp_extractor.forward_actor(tensors_of(eight.reset()))
    assert logits.shape == (2, 8)
    flat = [SB3VecEnv("servegym/Dispatch-v0", 2, cluster={"instances": m}) for m in (4, 8)]
    model = PPO("MlpPolicy", flat[0], n_steps=4, batch_size=8, n_epochs=1, seed=0)
    with pytest.raises(ValueError, match=r"Unexpected observation shape \(2, 171\).*\(n_env, 95\)"):
        model.predict(flat[1].reset())


def test_case_25_maskable_ppo_makes_no_illegal_action_in_10_000_decisions():
    """Reason: a mask that belongs to another observation than the policy's is noticed by nothing else."""
    env = SB3VecEnv(
        "servegym/Dispatch-v0",
        16,
        flatten=False,
        load=1.5,
        episode_requests=300,
        cluster={"instances": 4, "max_num_seqs": 4, "max_local_waiting": 1, "max_hold_s": 1e6},
    )
    model = MaskablePPO(MaskableSetPolicy, env, n_steps=16, batch_size=256, n_epochs=1, seed=0)
    model.learn(512)
    masked, illegal, decisions = [], [], []

    def watch(local_variables, _):
        i = local_variables["i"]
        masked.append(not local_variables["action_masks"][i].all())
        if local_variables["dones"][i]:
            illegal.append(local_variables["infos"][i]["n_illegal"])
            decisions.append(local_variables["infos"][i]["episode"]["l"])

    evaluate_policy(model, env, n_eval_episodes=36, deterministic=False, callback=watch)
    assert sum(decisions) >= 10_000
    assert sum(illegal) == 0
    assert sum(masked) > 1_000, "masks that forbid nothing would show nothing"


def test_plain_ppo_samples_no_illegal_action_either():
    env = SB3VecEnv(
        "servegym/Dispatch-v0",
        8,
        flatten=False,
        load=1.5,
        episode_requests=100,
        cluster={"instances": 3, "max_num_seqs": 4, "max_local_waiting": 1},
    )
    model = PPO(SetPolicy, env, n_steps=4, batch_size=32, seed=0)
    seen: Any = env.reset()
    n_forbidding = 0
    for _ in range(200):
        masks = env.action_masks()
        actions, _ = model.predict(seen, deterministic=False)
        over = ~rows_of(seen["instances"])[:, :, ACCEPTS].any(1)
        assert (masks[np.arange(8), actions] | over).all()
        n_forbidding += int((~masks).sum())
        seen, *_ = env.step(actions)
    assert n_forbidding > 100


def test_a_fleet_env_shows_what_its_environments_show():
    env = FleetVecEnv(**TINY)
    seen: Any = env.reset()
    assert seen["instances"].shape == (4, 3, N_INSTANCE)
    np.testing.assert_array_equal(seen[EXISTS], [[1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]])
    seen, rewards, _, _ = env.step(np.array([0, 1, 2, 2]))
    inner = env.envs[0].vector.batch.split(env.envs[0].vector.batch.table.observations)
    np.testing.assert_array_equal(seen["instances"][:2, :2], rows_of(inner["instances"]))
    assert not seen["instances"][:2, 2].any()
    paid = env.envs[1].vector.batch.table.outcomes[0]
    np.testing.assert_array_equal(rewards[2:], paid.astype(np.float32))
    np.testing.assert_array_equal(env.action_masks()[:2], [[True, True, False]] * 2)


def test_replicas_are_asked_about_the_same_requests_whatever_they_do():
    env, rng = FleetVecEnv(**TINY), np.random.default_rng(0)
    seen: Any = env.reset()
    differ = False
    for _ in range(100):  # more than two episodes
        actions = rng.integers(env.n_instances)
        seen, _, dones, _ = env.step(actions)
        for first in (0, 2):
            np.testing.assert_array_equal(seen["request"][first], seen["request"][first + 1])
            assert dones[first] == dones[first + 1]
            differ |= bool((seen["instances"][first] != seen["instances"][first + 1]).any())
    assert differ


def test_same_seed_gives_the_same_episodes_and_another_seed_others():
    def first_requests(seed):
        env = FleetVecEnv(**TINY | {"seed": seed})
        return env.reset()["request"], env.loads

    (one, loads), (same, _), (other, others) = (first_requests(seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any() and loads != others
    assert all(0.85 <= load <= 1.05 for load in loads)


def test_every_scenario_has_groups_of_its_own_with_its_own_seats():
    scenarios = ("tight", "default")
    env = FleetVecEnv(**TINY | {"sizes": (2,), "scenarios": scenarios})
    kinds = [group.vector.options.config for group in env.envs]
    assert [kind.max_num_seqs for kind in kinds] == [128, 256]
    assert [kind.kv_blocks for kind in kinds] == [6000, None]


def test_groups_of_every_scenario_begin_as_least_requests_leaves_them():
    # Group 1 of two begins in the middle of its episode, with some that wait: they count as those that run.
    options = TINY | {"sizes": (2,), "requests": 1_000, "loads": (1.3, 1.3), "replicas": 1}
    both: dict[str, Any] = options | {"scenarios": ("tight", "default")}
    alone: dict[str, Any] = options | {"scenarios": ("default",)}
    env = FleetVecEnv(**both)
    env.reset()
    group, twin = env.envs[1], FleetVecEnv(**alone).envs[0]
    twin._seeds = [group_seed(TINY["seed"], 1)]
    twin.reset()
    rows = instances_of(twin)
    for _ in range(500):
        requests = np.rint(rows[:, :, 0] * 256) + np.rint(rows[:, :, 1] * 16)
        twin.step(np.argmin(requests, 1))
        rows = instances_of(twin)
    assert rows[:, :, 1].any()
    np.testing.assert_array_equal(instances_of(group), rows)


def instances_of(group: SB3VecEnv) -> np.ndarray:
    """Return what the environments of a group show of their instances."""
    return rows_of(group.batch.split(group.batch.table.observations)["instances"]).copy()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scenarios": ("tihgt",)}, "unknown scenario 'tihgt'; did you mean 'tight'"),
        ({"lengths": ("predictd",)}, "unknown lengths 'predictd'"),
        ({"workloads": ()}, r"workloads = \[\]; must name some, each once"),
        ({"sizes": ()}, "instances = "),
    ],
)
def test_a_fleet_env_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        FleetVecEnv(**TINY | options)


def test_a_baseline_policy_plays_all_groups_of_a_fleet_env():
    env = FleetVecEnv(**TINY)
    seen = env.reset()
    policy = BaselinePolicy("round-robin", env)
    chosen, _ = policy.predict(seen)
    assert chosen.shape == (4,) and (chosen < env.n_instances).all()


def test_discounts_are_the_same_per_second_for_all_fleets():
    env = FleetVecEnv(**TINY)
    per_second = env.discounts(10.0) ** env.rates_per_s
    np.testing.assert_allclose(per_second, np.exp(-0.1))


def test_paired_advantages_of_a_hand_worked_rollout():
    # Two groups of two. Step means: 2 and 1 in the first; differences +-1 and +-1, deviation 1. Second: +-2 and 0,
    # deviation sqrt((4 + 4 + 0 + 0) / 4) = sqrt 2.
    advantages = np.array([[1, 3, 10, 14], [2, 0, 5, 5]], np.float32)
    found = paired(advantages, np.array([0, 0, 1, 1]))
    expected = [[-1, 1, -(2**0.5), 2**0.5], [1, -1, 0, 0]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_returns_discount_by_each_environment_and_stop_at_ends():
    # Values 0, lambda 1, discounts .5 and .8: rewards are scaled by .1 * .5 and .1 * .2. Environment 0: 1, 2, 4 and a
    # last value of 8 give .05 * (1 + 1 + 1) + .125 * 8 = 1.15. Environment 1 ends after its first step: .02 * 1.
    options: dict[str, Any] = TINY | {"sizes": (2,)}
    env = FleetVecEnv(**options)
    buffer = PairedRolloutBuffer(
        3,
        env.observation_space,
        env.action_space,
        "cpu",
        gae_lambda=1.0,
        n_envs=2,
        discounts=np.array([0.5, 0.8]),
        group_of=np.array([0, 0]),
    )
    seen = env.reset()
    starts = np.array([[0, 0], [0, 1], [0, 0]])
    for reward, start in zip([1.0, 2.0, 4.0], starts, strict=True):
        zero = torch.zeros(2)
        buffer.add(seen, np.zeros((2, 1)), np.array([reward, reward]), start, zero, zero)
    buffer.compute_returns_and_advantage(torch.tensor([8.0, 0.0]), np.array([False, False]))
    np.testing.assert_allclose(buffer.returns[0], [1.15, 0.02], rtol=1e-5)
    # What comes after the rollout weighs .125, .25, .5 and .51, .64, .8; e^-1 = .37 or less is wanted.
    np.testing.assert_array_equal(buffer.advantages != 0, [[1, 0], [1, 0], [0, 0]])


def test_checkers_take_a_fleet_env_for_a_vector_environment():
    env = FleetVecEnv(**TINY)
    assert isinstance(env.observation_space, gymnasium.spaces.Dict)
    assert env.env_is_wrapped(gymnasium.Wrapper) == [False] * 4
    assert env.has_attr("action_masks") and len(env.env_method("action_masks")) == 4
