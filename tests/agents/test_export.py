"""Tests of the export from torch: the native policy decides as the network does."""

from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="the extra rl is not installed")
pytest.importorskip("sb3_contrib", reason="the extra rl is not installed")

import torch

from servegym.agents.export import (
    native_policy,
    network_of_tensors,
    read_network,
    tensors_of_network,
    write_network,
)
from servegym.agents.set_policy import ACCEPTS, NOT_ACCEPTING, SetNetwork, rows_of
from servegym.baselines.features import LIMIT, N_CLUSTER, N_INSTANCE, N_REQUEST
from servegym.baselines.learned import write_checkpoint
from servegym.baselines.learned.set_mlp import set_logits
from servegym.baselines.simulate import simulate
from servegym.envs.sb3 import SB3VecEnv
from servegym.simulator.config import ClusterConfig
from servegym.traces import Trace


def random_network(hidden: int, seed: int) -> SetNetwork:
    """Return a network of which every weight counts."""
    torch.manual_seed(seed)
    network = SetNetwork(hidden)
    for tensor in network.parameters():
        torch.nn.init.normal_(tensor, std=0.3)
    with torch.no_grad():
        network.skip.weight.mul_(network.units)  # or the linear score would drown all else
    return network


def random_states(n: int, m: int, seed: int) -> list[np.ndarray]:
    """Return n states of m instances, most of which accept: rows of instances, request and cluster, float32."""
    rng = np.random.default_rng([seed, m])
    instances = rng.exponential(0.4, (n, m, N_INSTANCE)).clip(0, LIMIT)
    instances[:, :, ACCEPTS] = rng.random((n, m)) < 0.8
    request = rng.exponential(0.4, (n, N_REQUEST)).clip(0, LIMIT)
    cluster = rng.exponential(0.4, (n, N_CLUSTER)).clip(0, LIMIT)
    return [rows.astype(np.float32) for rows in (instances, request, cluster)]


def native_logits(policy, instances, request, cluster) -> np.ndarray:
    """Return what the compiled function gives, NOT_ACCEPTING as torch's policy has it."""
    out = np.empty(instances.shape[:2], np.float32)
    memory = np.zeros(policy.memory_size(ClusterConfig(instances=instances.shape[1])))
    for k in range(len(out)):
        set_logits(instances[k], request[k], cluster[k], policy.weights, memory, out[k])
    return np.where(instances[:, :, ACCEPTS] > 0, out, NOT_ACCEPTING)


def compare_states(network: SetNetwork, n: int, sizes) -> int:
    """Assert that n states of each size have the same logits and decision natively; return how many were decided.

    Torch and the native pass add up the same in float32, in another order. That rounds by some 1e-7 of what is added
    up, and where large terms cancel the sum is small: so a difference is measured by the largest logit of its state,
    and by 1 at least. Of each logit alone it is up to 1e-4. Torch in float64 shows that the native one is no worse.
    """
    policy, n_decided = native_policy(network), 0
    precise = deepcopy(network).double()
    for m in sizes:
        rows = random_states(n, m, seed=1)
        with torch.no_grad():
            logits = network(*map(torch.from_numpy, rows)).numpy()
            exact = precise(*(torch.from_numpy(each.astype(np.float64)) for each in rows)).numpy()
        accepts = rows[0][:, :, ACCEPTS] > 0
        logits, exact = (np.where(accepts, each, NOT_ACCEPTING) for each in (logits, exact))
        native = native_logits(policy, *rows)
        size = np.maximum(1.0, np.abs(logits, where=accepts, out=np.zeros_like(logits)).max(1))
        for wanted in (logits, exact):
            assert (np.abs(native - wanted).max(1) / size).max() < 1e-5
        np.testing.assert_array_equal(native.argmax(1), logits.argmax(1))
        n_decided += int((logits.max(1) > NOT_ACCEPTING).sum())
    return n_decided


def shipped_network() -> SetNetwork:
    """Return the network that ships, whose logits go to thousands in these states."""
    return read_network("dispatch-ppo")


@pytest.mark.parametrize("network", [partial(random_network, 32, 0), shipped_network])
def test_native_logits_and_decisions_are_torchs(network):
    assert compare_states(network(), 600, (1, 2, 5, 16, 64)) > 2_700


@pytest.mark.slow
@pytest.mark.parametrize("network", [partial(random_network, 32, 0), shipped_network])
def test_native_decisions_are_torchs_in_100_000_states_of_1_to_64_instances(network):
    assert compare_states(network(), 1_600, range(1, 65)) > 100_000


def test_an_episode_played_by_torch_in_an_environment_is_the_native_run():
    network = random_network(8, 4)
    env = SB3VecEnv(
        "servegym/Dispatch-v0",
        1,
        flatten=False,
        episode_requests=200,
        horizon_s=None,
        cluster={"instances": 3, "scenario": "tight"},
        record=True,
    )
    env.seed(0)
    seen: Any = env.reset()
    trace, config = env.batch.simulation().trace, env.vector.options.config
    seed, done = env.batch.episode_seeds[0], False
    while not done:
        instances, *others = (
            torch.from_numpy(seen[p]) for p in ("instances", "request", "cluster")
        )
        with torch.no_grad():
            logits = network(rows_of(instances), *others)
        seen, _, dones, _ = env.step(logits.argmax(1).numpy())
        done = bool(dones[0])
    played = env.vector.results()[0]
    native = simulate(trace, config, native_policy(network), seed=seed)
    chosen = native.requests["instance"]
    assert played.requests["instance"].tolist() == chosen.tolist()
    assert len(set(chosen)) == 3


def test_written_network_is_read_again_and_is_a_system(tmp_path):
    network = random_network(8, 1)
    file = write_network(network, tmp_path / "mine", {"objective": "mean-e2e", "seed": 1})
    again = read_network(file)
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor)
    trace = Trace(np.arange(20) * 0.01, [100] * 20, [10] * 20)
    by_name = simulate(trace, system=f"learned:{file}", instances=64, scenario="tight")
    in_memory = simulate(trace, system=native_policy(network), instances=64, scenario="tight")
    assert by_name.requests["instance"].tolist() == in_memory.requests["instance"].tolist()


def test_tensors_and_network_are_the_same_thing():
    network = random_network(4, 2)
    tensors = tensors_of_network(network)
    assert {name: tensor.dtype for name, tensor in tensors.items()} == dict.fromkeys(
        network.state_dict(), np.dtype(np.float32)
    )
    rows = list(map(torch.from_numpy, random_states(3, 4, 0)))
    torch.testing.assert_close(network_of_tensors(tensors)(*rows), network(*rows))


def test_a_linear_checkpoint_is_no_network(tmp_path):
    card = {"decision": "dispatch", "architecture": "linear"}
    weight = np.ones(3 * N_INSTANCE, np.float32)
    file = write_checkpoint(tmp_path / "line", {"weight": weight}, card)
    with pytest.raises(ValueError, match=r"is of linear for dispatch; must be set-mlp .*clone it"):
        read_network(file)
