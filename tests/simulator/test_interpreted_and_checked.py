"""The engine under NUMBA_BOUNDSCHECK=1 and under NUMBA_DISABLE_JIT=1, where compiled code hides its errors.

Out-of-range reads are silent in compiled code. With bounds checks they are IndexErrors; one inside a function that is
called by address (`catch_up`, every policy) cannot be raised through its caller: Python reports it as unraisable, and
these tests fail on that. Marked tests run in plain mode, too.
"""

import copy
import os
import pickle
import sys
from collections import Counter

import numpy as np
import pytest
from flat_profile import FLAT, SLOW
from random_cases import random_case
from test_reference import compare

from servegym.baselines.simulate import simulate
from servegym.simulator.config import ClusterConfig
from servegym.simulator.kernel import kernel
from servegym.simulator.policy import dispatch_policy, find_policy, policy_names
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED
from servegym.traces import Trace

# interpreted 64-bit random numbers wrap around on purpose
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in scalar")
ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
needs_bounds_checks = pytest.mark.skipif(
    os.environ.get("NUMBA_BOUNDSCHECK") != "1", reason="only with NUMBA_BOUNDSCHECK=1"
)


@pytest.fixture
def unraised(monkeypatch) -> list[BaseException]:
    """What was raised inside functions called by address, and went no further."""
    caught: list[BaseException] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: caught.append(report.exc_value))
    return caught


def burst(n: int = 24) -> Trace:
    """Return requests in bursts over 100 ms."""
    random = np.random.default_rng(3)
    arrival_s = np.sort(random.choice([0.0, 0.01, 0.0333, 0.1], n))
    return Trace(arrival_s, random.integers(1, 50, n), random.integers(1, 16, n))


@pytest.mark.boundscheck
@pytest.mark.parametrize("engine", ENGINES)
def test_engine_stays_in_bounds_on_random_cases(engine, unraised):
    for seed in range(200, 220):
        compare(random_case(engine, seed))
    assert unraised == []


@pytest.mark.boundscheck
@pytest.mark.nojit
@pytest.mark.parametrize("stale", [{}, {"metrics_interval_s": 0.02, "routers": 3}], ids=str)
@pytest.mark.parametrize("name", [n for n in policy_names("dispatch") if "test-" not in n])
def test_dispatch_policies_stay_in_bounds(name, stale, unraised):
    fleet = {"instances": 3, "profile": (FLAT, SLOW), "kv_blocks": 8, "order": "sjf"}
    result = simulate(burst(), system=name, **fleet, **stale)
    assert result.summary()["finished"] == 24
    assert unraised == []


@needs_bounds_checks
@pytest.mark.boundscheck
def test_index_out_of_range_is_seen_in_a_kernel():
    @kernel
    def peek(array, i):
        return array[i]

    with pytest.raises(IndexError):
        peek(np.zeros(3), np.int64(7))


@needs_bounds_checks
@pytest.mark.boundscheck
def test_index_out_of_range_is_seen_in_a_policy(unraised):
    @dispatch_policy(source="test", name="test-out-of-range", memory=1)
    def out_of_range(cluster, request, params, memory, rng):
        """Write behind the end of memory."""
        memory[5 + request.index] = 1.0
        return 0

    config = ClusterConfig(instances=2, profile=FLAT)
    Simulation(burst(), config, out_of_range).run()
    assert len(unraised) == 24 and {type(error) for error in unraised} == {IndexError}


@needs_bounds_checks
@pytest.mark.boundscheck
@pytest.mark.parametrize("engine", ENGINES)
def test_index_out_of_range_is_seen_inside_the_engine(engine, unraised):
    # at 5 ms everybody runs; seats that name requests which do not exist must be noticed
    config = ClusterConfig(instances=1, profile=FLAT, engine=engine, batch_wait_s=0.001)
    trace = Trace(np.zeros(3), np.full(3, 10), np.full(3, 4))
    simulation = Simulation(trace, config, find_policy("dispatch", "round-robin"))
    simulation.run(0.005)
    assert unraised == []
    simulation.state.slots["request"][:3] = 10**6
    simulation.run()
    assert {type(error) for error in unraised} == {IndexError}


@pytest.mark.nojit
@pytest.mark.parametrize("engine", ENGINES)
def test_interpreted_engine_agrees_with_the_reference(engine):
    # the five with the fewest tokens of a hundred, since interpreting costs by the token
    smallest = sorted(range(300, 400), key=lambda seed: size_of(engine, seed))[:5]
    happened = sum((compare(random_case(engine, seed)) for seed in smallest), Counter())
    assert happened["cases"] == 5


def size_of(engine: str, seed: int) -> int:
    """Return how many tokens a case's requests have."""
    trace = random_case(engine, seed).trace
    return int((trace.prompt_tokens + trace.output_tokens).sum())


# What a compiled run gave, written down.
CHOSEN = [0, 1, 0, 1, 0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0, 1, 0]
SUM_OF_FINISHES_PS = 4_690_000_000_000


@pytest.mark.nojit
def test_interpreted_run_gives_the_log_of_the_compiled_one():
    # 24 requests by power-of-two on 2 instances of 8 blocks, stopped and copied three ways on the way
    config = ClusterConfig(instances=2, profile=FLAT, kv_blocks=8)
    simulation = Simulation(burst(), config, find_policy("dispatch", "power-of-two"), seed=1)
    simulation.run(0.05)
    simulation.restore(simulation.snapshot())
    for run in (pickle.loads(pickle.dumps(simulation)), copy.deepcopy(simulation), simulation):
        run.run()
        records = run.state.requests
        assert (records["status"] == FINISHED).all()
        assert records["instance"].tolist() == CHOSEN
        assert records["finish_ps"].sum() == SUM_OF_FINISHES_PS
