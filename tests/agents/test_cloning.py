"""Tests of cloning: the student learns a teacher's choices, and is a checkpoint."""

from typing import Any

import pytest

pytest.importorskip("stable_baselines3", reason="the extra rl is not installed")
pytest.importorskip("sb3_contrib", reason="the extra rl is not installed")

import numpy as np
import torch

from servegym.agents import cloning
from servegym.agents.scenarios import Mix
from servegym.agents.set_policy import SetActorCritic
from servegym.baselines.learned import read_checkpoint
from servegym.baselines.systems import find_system
from servegym.envs.baseline_policy import BaselinePolicy
from servegym.simulator.config import ClusterConfig

FEW: dict[str, Any] = dict(
    rounds=2,
    steps=2_000,
    epochs=8,
    batch=128,
    instances=(2, 3),
    workloads=("azure-conv",),
    loads_each=2,
    requests=600,
    hidden=8,
    learning_rate=0.01,
)


@pytest.fixture(autouse=True)
def small_cases(monkeypatch):
    """Let validation cases be short."""
    init = Mix.__init__

    def made(self, *args, **kwargs):
        init(self, *args, **kwargs)
        object.__setattr__(self, "requests", 200)

    monkeypatch.setattr(Mix, "__init__", made)


def test_student_of_least_kv_chooses_as_it_does(tmp_path):
    card = cloning.train(cloning.Options(teacher="least-kv", out=tmp_path / "a", **FEW), "")
    assert card["evaluation"]["agreement"] > 0.9, "chance is .42"
    assert card["algorithm"] == "clone" and card["trained_on"]["teacher"] == "least-kv"
    assert read_checkpoint(tmp_path / "a").card["architecture"] == "set-mlp"


def test_same_seed_clones_the_same_network(tmp_path):
    options = {**FEW, "rounds": 2, "steps": 200, "epochs": 1}
    for name in "ab":
        cloning.train(cloning.Options(teacher="least-kv", out=tmp_path / name, **options), "")
    one, two = (read_checkpoint(tmp_path / name).tensors for name in "ab")
    for name, tensor in one.items():
        np.testing.assert_array_equal(tensor, two[name])


def test_a_clone_is_taught_and_validated_in_the_scenarios_asked_for(tmp_path):
    few = FEW | {"steps": 40, "epochs": 1, "requests": 60, "instances": (2,), "loads_each": 1}
    options = cloning.Options(
        teacher="least-kv",
        scenarios=("default", "no-paging"),
        lengths=("predicted",),
        out=tmp_path / "a",
        **few,
    )
    taught = [group.vector.options.config.block_size for group in cloning.make_env(options).envs]
    assert taught == [16, 2048]
    cases = cloning.train(options, "")["evaluation"]["cases"]
    assert {case["scenario"] for case in cases} == {"default", "no-paging"}


def test_labels_are_the_teachers_where_the_student_acts():
    env = cloning.make_env(cloning.Options(teacher="least-requests", scenarios=("tight",), **FEW))
    teacher, student = BaselinePolicy("least-requests", env), SetActorCritic(4)
    _, rows, labels = cloning.collect(env, teacher, student, 400, env.reset())
    requests = rows["instances"][:, :, 0] * 128 + rows["instances"][:, :, 1] * 16
    requests[rows["exists"] == 0] = torch.inf
    chosen = requests.gather(1, labels[:, None]).squeeze(1)
    torch.testing.assert_close(chosen, requests.amin(1))
    assert len(labels) == 400


@pytest.mark.parametrize(
    ("teacher", "sets"),
    [
        ("learned:serve-goodput", "max_local_waiting=0, queue=learned:serve-goodput"),
        ("n-tier", "order=priority, migration=n-tier, rebalance_interval_s=0.05"),
        ("driftsched-sjf", "order=sjf, max_local_waiting=0"),
        ("least-requests:queue=weighted", "queue=weighted"),
    ],
)
def test_a_teacher_that_sets_more_than_a_clone_copies_is_refused(teacher, sets, tmp_path):
    with pytest.raises(ValueError, match=f"teacher = '{teacher}'; it sets {sets}, and a clone"):
        cloning.train(cloning.Options(teacher=teacher, out=tmp_path / "a", **FEW), "")


@pytest.mark.parametrize(
    ("teacher", "sets"),
    [
        ("marginal:remaining=residual", {"remaining"}),
        ("block:estimator=noisy,error=.2", {"estimator", "estimator_params"}),
        ("learned:dispatch-mean-e2e", set()),
    ],
)
def test_a_teacher_may_set_what_is_known_of_lengths(teacher, sets):
    """What is set must get there, or nothing would have been let through."""
    cloning.check_teacher(teacher)
    assert set(find_system(teacher).manifest(ClusterConfig())["config"]) == sets


def test_unknown_teacher_is_named():
    with pytest.raises(ValueError, match="least-kw"):
        cloning.train(cloning.Options(teacher="least-kw"), "")
