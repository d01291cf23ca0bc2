"""Checkpoints as systems: found by name, in another process, from another folder, after a change; played everywhere."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from learned_examples import LINEAR, F, linear_weights, random_tensors, written

import servegym.envs  # noqa: F401  (registers the environments)
from servegym.baselines.learned import (
    LearnedPolicy,
    checkpoint,
    linear_policy,
    set_network_policy,
    write_checkpoint,
)
from servegym.baselines.simulate import replay, simulate
from servegym.baselines.systems import find_system, system_names
from servegym.envs.baseline_policy import BaselinePolicy
from servegym.experiments.compare import compare
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.testing import check_policy
from servegym.traces import generate

ARCHITECTURES = pytest.mark.parametrize("architecture", ["linear", "set-mlp"])


def records(system, **options: Any) -> np.ndarray:
    """Return what the requests of a small busy cluster got."""
    options = {"instances": 4, "kv_blocks": 900} | options
    return simulate(generate("azure-conv", 400, 20.0, 3), system=system, **options).records


def weights_of(system: str) -> np.ndarray:
    """Return the packed weights of a system's dispatch policy."""
    policy = find_system(system).policy
    assert isinstance(policy, LearnedPolicy) and policy.weights is not None
    return policy.weights


@ARCHITECTURES
def test_a_learned_policy_passes_the_conformance_suite(architecture, tmp_path):
    check_policy(written(tmp_path, architecture), kind="dispatch")


def test_parts_and_fields_stand_behind_the_file(tmp_path):
    name = written(tmp_path, "linear")
    system = find_system(f"{name},order=sjf,metrics_interval_s=2,estimator=noisy,error=.5")
    assert system.dispatch == name
    assert system.settings == {
        "order": "sjf",
        "metrics_interval_s": 2.0,
        "estimator": "noisy",
        "estimator_params": {"error": 0.5},
    }
    assert system.summary == "A learned linear score."
    assert find_system(f"n-tier:dispatch={name}").policy is system.policy
    with pytest.raises(ValueError, match="unknown parameter 'd'"):
        find_system(f"{name},d=3")


@pytest.mark.parametrize(
    "wanted", ["learned", "learned:", "learned:order=sjf", "learned:, order=sjf"]
)
def test_a_system_without_a_file_says_how_it_is_written(wanted):
    with pytest.raises(
        ValueError, match=r"must be learned:FILE, then settings: learned:FILE,order=sjf"
    ):
        find_system(wanted)


def test_a_file_that_there_is_not_says_so():
    with pytest.raises(
        ValueError, match=r"checkpoint = 'nowhere/x'; there is no file .*/nowhere/x.safetensors"
    ):
        simulate(generate("azure-conv", 10, 1.0, 3), system="learned:nowhere/x")


def test_a_relative_name_is_found_again_from_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_checkpoint("here", {"weight": linear_weights(waiting=1)}, LINEAR)
    system = find_system("learned:here")
    assert (system.name, system.dispatch) == ("learned:here", f"learned:{tmp_path / path}")
    swapped = find_system("n-tier:dispatch=learned:here")
    monkeypatch.chdir("/")
    assert find_policy("dispatch", system.dispatch) is system.policy is swapped.policy


def test_a_file_that_was_written_anew_is_read_anew(tmp_path):
    for value in (1.0, 2.0):
        path = write_checkpoint(
            tmp_path / "mine", {"weight": np.full(3 * F, value, np.float32)}, LINEAR
        )
        name = f"learned:{path}"
        assert set(weights_of(name).tolist()) == {value}
        assert find_system(name).policy is find_system(name).policy


def test_the_manifest_tells_two_files_of_one_name_apart(tmp_path):
    hashes = []
    for value in (1.0, 2.0):
        path = write_checkpoint(
            tmp_path / "mine", {"weight": np.full(3 * F, value, np.float32)}, LINEAR
        )
        manifest = find_system(f"learned:{path}").manifest(ClusterConfig())
        assert manifest["dispatch"] == f"learned:{path}"
        hashes.append(manifest["checkpoint_sha256"])
    assert len(set(hashes)) == 2
    assert "checkpoint_sha256" not in find_system("n-tier").manifest(ClusterConfig())
    assert "checkpoint_sha256" not in find_system(linear_policy(np.ones(3 * F))).manifest(
        ClusterConfig()
    )


@ARCHITECTURES
def test_a_pickle_has_the_weights_and_needs_no_file(architecture, tmp_path):
    name = written(tmp_path, architecture)
    policy = find_system(name).policy
    content, expected = pickle.dumps(policy), records(policy)
    for path in tmp_path.iterdir():
        path.unlink()
    copy = pickle.loads(content)
    assert (copy.name, copy.kind, copy.source) == (policy.name, "dispatch", policy.source)
    np.testing.assert_array_equal(records(copy), expected)


def test_another_process_finds_it_by_name_and_by_pickle(tmp_path):
    name = written(tmp_path, "set-mlp")
    policy = find_system(name).policy
    (tmp_path / "policy.pickle").write_bytes(pickle.dumps(policy))
    program = (
        "import pickle, sys; from servegym.simulator.policy import find_policy\n"
        "read = pickle.load(open(sys.argv[1], 'rb')); found = find_policy('dispatch', read.name)\n"
        "print(read.weights.tobytes().hex() == found.weights.tobytes().hex() == sys.argv[2])"
    )
    digest = weights_of(name).tobytes().hex()
    arguments = [sys.executable, "-c", program, str(tmp_path / "policy.pickle"), digest]
    done = subprocess.run(arguments, cwd="/", env=os.environ, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


@ARCHITECTURES
def test_an_episode_is_the_native_run(architecture, tmp_path):
    system = f"{written(tmp_path, architecture)},estimator=oracle"
    cluster: dict[str, Any] = {"instances": 3, "kv_blocks": 900, "max_num_seqs": 24}
    env: Any = gymnasium.make(
        "servegym/Dispatch-v0", cluster=cluster, system=system, episode_requests=150, load=1.1
    ).unwrapped
    env.reset(seed=5)
    policy, is_over = BaselinePolicy(system, env), False
    while not is_over:
        _, _, terminated, truncated, _ = env.step(policy.predict()[0])
        is_over = terminated or truncated
    played = env.result().records
    native = simulate(
        env.trace,
        system=system,
        seed=env.episode_seed,
        horizon_s=env.options.horizon_s,
        **cluster,
    ).records
    for field in played.dtype.names:
        np.testing.assert_array_equal(played[field], native[field], err_msg=field)
    assert len(np.unique(native["instance"])) > 1


def test_it_acts_for_an_agent_whose_action_is_masked(tmp_path):
    name = written(tmp_path, "linear")
    env: Any = gymnasium.make("servegym/Dispatch-v0", fallback=name).unwrapped
    assert env.options.fallback is find_policy("dispatch", name)


def test_a_saved_run_is_played_again(tmp_path):
    name = written(tmp_path, "set-mlp")
    result = simulate(generate("azure-conv", 200, 20.0, 3), instances=4, system=name)
    result.save(tmp_path / "run")
    np.testing.assert_array_equal(replay(tmp_path / "run").records, result.records)


def test_it_is_compared_like_any_other(tmp_path):
    names = ["least-requests", written(tmp_path, "linear"), written(tmp_path, "set-mlp")]
    found = compare(names, seeds=2, n_requests=200, load=0.9, instances=3, progress=False)
    assert found.systems == names
    resolved = found.manifest()["resolved"]
    assert ["checkpoint_sha256" in resolved[name] for name in names] == [False, True, True]


def test_shipped_checkpoints_are_systems(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SHIPPED", tmp_path)
    written(tmp_path, "linear", 7)
    assert "learned:linear-7" in system_names()
    assert find_system("learned:linear-7").dispatch == "learned:linear-7"


def test_other_weights_make_another_policy_of_the_same_code():
    policy = linear_policy(linear_weights(kv_used=1))
    other = replace(policy, weights=linear_weights(kv_used=-1).astype(np.float64))
    assert other.address == policy.address
    assert (records(policy)["instance"] != records(other)["instance"]).any()
    expected = records(linear_policy(linear_weights(kv_used=-1)))
    np.testing.assert_array_equal(records(other), expected)
    np.testing.assert_array_equal(records(pickle.loads(pickle.dumps(other))), expected)


def test_another_width_needs_other_memory():
    narrow, wide = (set_network_policy(random_tensors(hidden)) for hidden in (4, 64))
    config, other = ClusterConfig(instances=8), replace(narrow, weights=wide.weights)
    assert other.memory_size(config) == wide.memory_size(config) > narrow.memory_size(config)
    for weights in (np.ones(57, np.float32), np.ones((1, 57))):
        with pytest.raises(ValueError, match="must be float64\\[W\\], packed"):
            replace(linear_policy(np.ones(57)), weights=weights)
    with pytest.raises(ValueError, match="learned: 54 weights; linear has 57"):
        replace(linear_policy(np.ones(57)), weights=np.ones(54))
