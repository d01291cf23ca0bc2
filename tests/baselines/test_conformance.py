"""What every policy must do. A policy that ships is tested by being there.

The first test is what anybody may run on a policy of theirs; the rest is about those that ship.
FLAT instances have 1,000 blocks and take 10 ms an iteration; SLOW take 20 ms, BIG has more KV.
"""

import numpy as np
import pytest
from flat_profile import FLAT, SLOW

from servegym.baselines.learned import kinds_of, read_checkpoint, shipped_names
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy, policy_names
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED, ROLES
from servegym.testing import check_policy
from servegym.testing.invariance import check_single_instance
from servegym.traces import Trace
from servegym.traces.workload import generate

SHIPPED = [
    (kind, name)
    for kind in ROLES
    for name in policy_names(kind)
    if find_policy(kind, name).function.__module__.startswith("servegym.")
]
LEARNED = [
    (kind, f"learned:{name}")
    for name in shipped_names()
    for kind in kinds_of(read_checkpoint(name))
]
EVERY_DISPATCH = pytest.mark.parametrize(
    "name", [name for kind, name in SHIPPED if kind == "dispatch"]
)
FIRST_OF_EQUALS = {"n-tier", "infaas-vllm"}  # published so: ties go to the lowest index
ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
BIG = "a100_sxm/Llama-3.1-8B/tp1"


@pytest.mark.parametrize(("kind", "name"), [*SHIPPED, *LEARNED])
def test_every_policy_passes_the_conformance_suite(kind, name):
    check_policy(name, kind=kind)


def test_every_kind_of_policy_ships():
    assert {kind for kind, _ in SHIPPED} == set(ROLES)


def run(name: str, trace: Trace, seed: int = 0, **options) -> Simulation:
    """Run to the end."""
    config = ClusterConfig(**{"instances": 4, "profile": FLAT, **options})
    simulation = Simulation(trace, config, find_policy("dispatch", name), seed=seed)
    simulation.run()
    return simulation


def busy_trace(n: int = 400) -> Trace:
    """Return requests at a rate that keeps a few instances busy, some too long for FLAT."""
    trace = generate("azure-conv", n, 15.0, 3)
    prompt = trace.prompt_tokens.copy()
    prompt[::40] = 20_000
    return Trace(trace.arrival_s, prompt, trace.output_tokens)


MIXED = {"profile": (FLAT, BIG, SLOW), "instances": 7, "max_num_batched_tokens": 25_000}
STALE = {"metrics_interval_s": 0.7, "routers": 3}


@EVERY_DISPATCH
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", [{}, STALE], ids=["true", "stale"])
def test_choice_is_always_an_instance_that_accepts_the_request(name, options, engine):
    # the engine refuses any other, so everybody ends; the long ones only fit BIG, instances 1 and 4
    records = run(name, busy_trace(), engine=engine, **MIXED, **options).state.requests
    assert (records["status"] == FINISHED).all()
    assert set(records["instance"][records["need_blocks"] > 1000].tolist()) <= {1, 4}
    fast = {0, 1, 3, 4, 6}  # a policy that foresees finishes may leave SLOW alone
    least_used = fast if find_policy("dispatch", name).uses_what_if else set(range(7))
    assert set(records["instance"].tolist()) >= least_used


@EVERY_DISPATCH
def test_another_seed_matters_only_to_those_that_draw(name):
    logs = [run(name, busy_trace(), seed, **MIXED).state for seed in (5, 6)]
    untouched = Simulation(
        busy_trace(), ClusterConfig(**MIXED), find_policy("dispatch", name), seed=5
    ).state.streams
    draws = bool((logs[0].streams != untouched).any())
    assert draws == bool((logs[0].requests["instance"] != logs[1].requests["instance"]).any())


@EVERY_DISPATCH
def test_case_08_with_one_instance_every_router_gives_the_same_log(name):
    """Where there is nothing to choose, a difference is a bug in the router or in how it is called."""
    check_single_instance(find_policy("dispatch", name))


@EVERY_DISPATCH
def test_identical_idle_instances_are_all_used(name):
    trace = Trace(np.arange(200.0), np.full(200, 10), np.full(200, 2))
    shares = np.bincount(run(name, trace).state.requests["instance"], minlength=4)
    if name in FIRST_OF_EQUALS:
        assert shares.tolist() == [200, 0, 0, 0]
    else:  # chance: 50 +- 6
        assert shares.min() >= 25
