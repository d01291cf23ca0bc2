"""Masks: three ways from one array, never all False, of the decision that was shown; and who steps over them."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from flat_profile import FLAT
from gymnasium.vector import AutoresetMode
from random_arguments import IDS, plain_arguments, random_arguments

from servegym.simulator.config import ClusterConfig
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import ABSENT, ACTIVE, DRAINING
from servegym.testing.playing import is_same
from servegym.traces import Trace

DISCRETE = IDS[:-1]  # Headroom has no masks
NO_SB3 = "sb3-contrib is an optional extra (rl)"
# Much is masked: few seats, an instance that is down, one that is absent.
NARROW: dict[str, Any] = {
    "episode_requests": 40,
    "rate_per_s": 10.0,
    "tier_mix": [0.5, 0.5],
    "cluster": {
        "instances": 3,
        "max_instances": 4,
        "max_num_seqs": 2,
        "tiers": 2,
        "max_local_waiting": 1,
        "faults": [{"kind": "crash", "instance": 1, "at_s": 0.5, "duration_s": 2.0}],
    },
}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("env_id", DISCRETE)
def test_case_25_masks_of_a_vector_agree_after_autoreset_too(env_id, mode):
    """CASES 25: action_masks(), infos and observations, at every step of many episodes; all legal actions are taken."""
    arguments = plain_arguments(env_id, **NARROW, mask_in_observation=True, strict=True)
    env: Any = gymnasium.make_vec(env_id, num_envs=3, autoreset_mode=mode, **arguments)
    observation, infos = env.reset(seed=0)
    rng, n_ended, n_masked = np.random.default_rng(0), 0, 0
    for _ in range(400):
        mask = env.unwrapped.action_masks()
        assert mask.any(axis=1).all()
        assert is_same(infos["action_mask"], mask.astype(np.int8))
        assert is_same(observation["action_mask"], infos["action_mask"])
        n_masked += int((~mask).sum())
        actions = np.array([rng.choice(np.flatnonzero(row)) for row in mask])
        observation, _, terminated, truncated, infos = env.step(actions)
        assert not infos["illegal_action"].any()
        n_ended += int((terminated | truncated).sum())
    assert n_ended > 3
    assert n_masked or env_id == "servegym/Admission-v0"


def test_case_25_masks_are_copies():
    """CASES 25: whoever writes into a mask that was handed out changes nothing."""
    env: Any = gymnasium.make("servegym/Serve-v0", **NARROW, mask_in_observation=True)
    observation, info = env.reset(seed=0)
    for mask in (info["action_mask"], observation["action_mask"], env.unwrapped.action_masks()):
        before = env.unwrapped.action_masks()
        mask[:] = 1 - mask
        assert is_same(env.unwrapped.action_masks(), before)


def two_queues(**options: Any) -> Any:
    """Return Serve over two FLAT instances with a seat each and two tiers; four requests arrive at 0, .1, .2, .3 ms."""
    trace = Trace([0.0, 1e-4, 2e-4, 3e-4], [16] * 4, [2] * 4, tier=[1, 0, 0, 1])
    config = ClusterConfig(instances=2, profile=FLAT, max_num_seqs=1, tiers=2, hold_timer_s=10.0)
    return gymnasium.make("servegym/Serve-v0", workload=trace, cluster=config, **options)


def test_case_25_serve_by_hand():
    """CASES 25: actions are queue * 2 + instance, and wait, the last (4).

    At 0 r0 (tier 1): legal are (1, 0), (1, 1), wait. Wait. At .1 ms r1 (tier 0) comes: all four pairs. (0, 1): r1 to
    instance 1; asked again at once: (1, 0) and wait. (1, 0). Then both seats are taken: nobody is asked about r2 and
    r3 until two iterations of 10 ms have ended, at 20.1 ms on both: all pairs again.
    """
    env = two_queues()
    _, info = env.reset(seed=0)
    masks, elapsed = [info["action_mask"].tolist()], []
    for action in (4, 1, 2):
        *_, info = env.step(action)
        masks.append(info["action_mask"].tolist())
        elapsed.append(round(info["elapsed_s"] * 1e3, 9))
        assert not info["illegal_action"]
    assert masks == [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 1], [1, 1, 1, 1, 1]]
    assert elapsed == [0.1, 0.0, 20.0]


def test_case_25_masked_action_acts_as_wait_and_is_counted():
    """CASES 25: Serve's fallback is to wait; (0, 0) is masked while queue 0 is empty."""
    env, twin = two_queues(), two_queues()
    env.reset(seed=0)
    twin.reset(seed=0)
    *shown, info = env.step(0)
    *expected, other = twin.step(4)
    assert is_same(shown, expected)
    assert info["illegal_action"] is True
    assert other["illegal_action"] is False
    assert is_same(info | {"illegal_action": False}, other)
    assert env.unwrapped.batch.episodes["n_illegal"].tolist() == [1]


def test_case_25_strict_raises_and_names_what_is_legal():
    """CASES 25: whoever wants to know of every masked action asks for it."""
    env = two_queues(strict=True)
    _, before = env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action = 0; it is masked: legal are \[2, 3, 4\]"):
        env.step(0)
    assert is_same(env.unwrapped.action_masks(), before["action_mask"].astype(bool))
    env.step(2)


@pytest.mark.parametrize("env_id", DISCRETE)
def test_case_25_maskable_ppo_makes_no_illegal_action(env_id):
    """CASES 25: 10,000 decisions of an untrained MaskablePPO by the masks, in many episodes."""
    contrib = pytest.importorskip("sb3_contrib", reason=NO_SB3)
    sb3 = pytest.importorskip("servegym.envs.sb3", reason=NO_SB3)
    env = sb3.SB3VecEnv(env_id, num_envs=20, **plain_arguments(env_id, **NARROW))
    env.seed(0)
    observation = env.reset()
    model = contrib.MaskablePPO("MlpPolicy", env, seed=0, device="cpu", n_steps=8)
    n_illegal = 0
    for _ in range(500):
        mask = np.stack(env.env_method("action_masks"))
        actions, _ = model.predict(observation, action_masks=mask, deterministic=False)
        n_illegal += int((mask[np.arange(20), actions] == 0).sum())
        observation, *_ = env.step(actions)
        n_illegal += int(env.batch.episodes["is_illegal"].sum())
    assert n_illegal == 0


@pytest.mark.parametrize("env_id", DISCRETE)
def test_case_25_random_agents_are_counted_alike_in_vectors(env_id):
    """CASES 25: plain PPO steps unmasked samples: each masked one is counted, in the sub-environment that made it."""
    arguments = random_arguments(env_id, 500)
    env: Any = gymnasium.make_vec(env_id, num_envs=4, **arguments)
    _, infos = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(100):
        mask, actions = infos["action_mask"], rng.integers(env.single_action_space.n, size=4)
        was_over = env.unwrapped.batch.episodes["is_over"] != 0
        *_, infos = env.step(actions)
        is_masked = mask[np.arange(4), actions] == 0
        assert infos["illegal_action"].tolist() == (is_masked & ~was_over).tolist()


# Against docs/engine.md section 10, read again from the records.


def accepts(simulation: Simulation, r: int, i: int) -> bool:
    """Return whether instance i accepts request r by the words of the page, for vllm-v1."""
    config, request, instance = (
        simulation.config,
        simulation.state.requests[r],
        simulation.state.instances[i],
    )
    blocks = int(simulation.state.engines[instance["engine"]]["kv_blocks"])
    longest = int(request["prompt_tokens"] + request["output_tokens"]) - 1
    if instance["condition"] != ACTIVE or -(-longest // config.block_size) > blocks:
        return False
    limit = config.max_local_waiting
    if limit is None:
        return True
    seen = simulation.observe(i)
    if limit > 0:
        return seen["n_waiting"] < limit
    known = int(request["prompt_tokens"] + request["generated"])
    free = blocks - seen["used_blocks"] - seen["waiting_blocks"] - -(-known // config.block_size)
    seated = seen["n_running"] + seen["n_waiting"] + int(instance["n_parked"])
    return not instance["n_once_preempted"] and seated < config.max_num_seqs and free >= 0


def naive_mask(kind: str, simulation: Simulation) -> list[bool]:
    """Return which actions are legal, by the table of environments."""
    state, n = simulation.state, len(simulation.state.instances)
    if kind == "dispatch":
        r = int(state.shared[0]["asked_request"])
        return [accepts(simulation, r, i) for i in range(n)]
    if kind == "scaling":
        condition = state.instances["condition"]
        n_active = int((condition == ACTIVE).sum())
        can_add = bool(np.isin(condition, (ABSENT, DRAINING)).any())
        return [n_active > simulation.config.min_instances, True, can_add]
    pairs = []
    for queue in state.queues[:-1]:
        is_there = queue["n_waiting"] > 0
        pairs.append([is_there and accepts(simulation, int(queue["head"]), i) for i in range(n)])
    if kind == "ordering":
        return [any(row) for row in pairs]
    return [bool(each) for row in pairs for each in row] + [True]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["dispatch", "ordering", "serve", "scaling"])
def test_case_25_masks_are_those_of_the_page(kind, seed):
    """CASES 25: at every decision, where seats and KV are few, and instances crash or drain."""
    env_id = f"servegym/{kind.capitalize()}-v0"
    arguments = plain_arguments(env_id, **NARROW)
    more = {
        "kv_blocks": 260 if seed % 2 else 900,
        "max_num_seqs": 3 + seed,
        "max_local_waiting": seed % 3 or None,
    }
    arguments["cluster"] = NARROW["cluster"] | more
    env: Any = gymnasium.make(env_id, **arguments).unwrapped
    _, info = env.reset(seed=seed)
    rng, n_masked, is_over = np.random.default_rng(seed), 0, False
    while not is_over:
        mask = env.action_masks()
        if not env.batch.episodes["is_over"][0]:
            assert mask.tolist() == naive_mask(kind, env.simulation)
            assert kind != "serve" or mask[:-1].any()  # where one can only wait nobody is asked
            n_masked += int((~mask).sum())
        *_, terminated, truncated, info = env.step(int(rng.choice(np.flatnonzero(mask))))
        assert not info["illegal_action"]
        is_over = terminated or truncated
    assert n_masked > 0


def test_fallback_may_ask_what_would_happen():
    """One seat on each of two instances, pull: instance 0 is taken, so that block, asked instead, finds instance 1."""
    trace = Trace([0.0, 0.001], [16, 16], [50, 50])
    cluster = {"instances": 2, "max_num_seqs": 1, "max_local_waiting": 0}
    env: Any = gymnasium.make(
        "servegym/Dispatch-v0", workload=trace, cluster=cluster, fallback="block"
    )
    env.reset(seed=0)
    *_, info = env.step(0)
    assert info["action_mask"].tolist() == [0, 1]
    *_, terminated, _, info = env.step(0)
    assert terminated
    assert info["illegal_action"]
    assert env.unwrapped.result().requests["instance"].tolist() == [0, 1]
