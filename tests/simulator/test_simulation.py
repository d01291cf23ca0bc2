"""A run in Python's hands: stopping, looking, copying and pickling change nothing; errors name who is at fault."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import odd_policies  # registers its policies
import pytest
from flat_profile import FLAT, SLOW
from hypothesis import given, settings
from hypothesis import strategies as st

from servegym.simulator.config import ClusterConfig
from servegym.simulator.errors import NoProgressError
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import LATEST_PS, ROLES, State
from servegym.testing.conservation import check_blocks, check_conservation
from servegym.traces import Trace

ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
# Drawn policies and estimators, whose random streams must be part of every copy.
DRAWN = ("random", "power-of-two", "power-of-two-kv", "test-witness")
MS = 10**9


def bursty_trace(n: int = 60) -> Trace:
    """Return requests in bursts, over 300 ms, with tiers."""
    random = np.random.default_rng(1)
    arrival_s = np.sort(np.round(random.uniform(0, 0.3, n), 2))
    prompt, output = random.integers(1, 60, n), random.integers(1, 40, n)
    return Trace(arrival_s, prompt, output, tier=random.integers(0, 3, n))


def starved(engine: str = "vllm-v1", dispatch: str = "power-of-two", **options) -> Simulation:
    """Return 3 instances with little KV, stale metrics and a noisy estimator, before the first event."""
    config = {
        "instances": 3,
        "profile": FLAT,
        "engine": engine,
        "order": "sjf",
        "tiers": 3,
        "kv_blocks": 12,
        "batch_size": 4,
        "estimator": "test-noisy",
        "metrics_interval_s": 0.05,
        "routers": 2,
    }
    run = {name: options.pop(name) for name in ("seed", "horizon_s") if name in options}
    config = ClusterConfig(**(config | options))
    return Simulation(bursty_trace(), config, find_policy("dispatch", dispatch), **run)


def one_instance(
    *rows: tuple[float, int, int], dispatch: str = "test-always", **options
) -> Simulation:
    """Return one FLAT instance (10 ms an iteration); rows are (arrival in s, prompt, output)."""
    arrival, prompt, output = np.array(rows).T
    config = ClusterConfig(**{"instances": 1, "profile": FLAT, **options})
    return Simulation(Trace(arrival, prompt, output), config, find_policy("dispatch", dispatch))


def now_ps(simulation: Simulation) -> int:
    """Return the present, ps."""
    return int(simulation.state.shared[0]["now_ps"])


OF_A_PROCESS = ("pointer", "address")  # endings of fields that say where something lies


def assert_same(mine: Simulation, other: Simulation) -> None:
    """Assert that two states are equal in all but what belongs to a process."""
    for name, a, b in zip(State._fields, mine.state, other.state, strict=True):
        if name == "links":
            continue
        a, b = a.copy(), b.copy()
        for field in a.dtype.names or ():
            if field.endswith(OF_A_PROCESS):
                a[field] = b[field] = 0
        np.testing.assert_array_equal(a, b, err_msg=name)


# Copies.


@pytest.mark.parametrize("dispatch", DRAWN)
@pytest.mark.parametrize("engine", ENGINES)
def test_case_28_copies_in_mid_run_have_identical_and_independent_futures(engine, dispatch):
    """Copies that shared a random stream or a queue gave what-if runs that changed the real one."""
    simulation = starved(engine, dispatch)
    simulation.run(0.151)
    present = simulation.snapshot()
    twins = [copy.deepcopy(simulation), pickle.loads(pickle.dumps(simulation))]
    simulation.run()
    chance = list(map(ROLES.index, ("dispatch", "estimation")))
    assert (simulation.state.streams != present.streams)[chance].all()  # it decided in between
    for twin in twins:
        assert now_ps(twin) == 151 * MS  # the original's future has left it alone
        twin.run()
        assert_same(twin, simulation)
    twin = starved(engine, dispatch)
    twin.restore(present)
    assert_same(twin, starved_until(0.151, engine, dispatch))
    twin.run()
    assert_same(twin, simulation)


def starved_until(until_s: float, engine: str, dispatch: str) -> Simulation:
    """Return the same run from the start, paused."""
    simulation = starved(engine, dispatch)
    simulation.run(until_s)
    return simulation


def test_restored_snapshot_can_be_restored_again():
    simulation = starved()
    simulation.run(0.1)
    present, futures = simulation.snapshot(), []
    for _ in range(3):
        simulation.run()
        futures.append(simulation.state.requests.copy())
        simulation.restore(present)
        assert now_ps(simulation) == 100 * MS
    np.testing.assert_array_equal(futures[0], futures[1])
    np.testing.assert_array_equal(futures[0], futures[2])


def test_snapshot_of_another_size_is_refused():
    with pytest.raises(ValueError, match="snapshot: instances has shape"):
        starved().restore(starved(instances=2).snapshot())


def test_copies_with_different_seeds_diverge():
    # the copies above would also be identical if chance played no part
    logs = [starved(seed=seed) for seed in (0, 1)]
    for simulation in logs:
        simulation.run()
    assert (logs[0].state.requests["instance"] != logs[1].state.requests["instance"]).any()
    assert (
        logs[0].state.requests["predicted_tokens"] != logs[1].state.requests["predicted_tokens"]
    ).any()


RESUME = """
import pickle, sys
import numpy as np
import odd_policies, flat_profile
simulation = pickle.load(open(sys.argv[1], "rb"))
assert simulation.state.shared[0]["now_ps"] == 151 * 10**9
simulation.run()
np.save(sys.argv[2], simulation.state.requests)
"""


@pytest.mark.parametrize("engine", ["vllm-v1"])
def test_case_28_pickle_resumes_in_a_new_process(tmp_path, engine):
    """A pickle that holds addresses of compiled code crashes, or worse, in the next process."""
    simulation = starved(engine, "power-of-two-tokens")
    simulation.run(0.151)
    (tmp_path / "run.pickle").write_bytes(pickle.dumps(simulation))
    here = Path(__file__).parent
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(
            [str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
        )
    }
    command = [
        sys.executable,
        "-c",
        RESUME,
        str(tmp_path / "run.pickle"),
        str(tmp_path / "log.npy"),
    ]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    simulation.run()
    np.testing.assert_array_equal(np.load(tmp_path / "log.npy"), simulation.state.requests)


def test_pickle_is_small_and_holds_no_code():
    # names of policies, not their functions: the state dominates, and the names of its 294 fields
    simulation = starved()
    assert len(pickle.dumps(simulation)) < sum(a.nbytes for a in simulation.state) + 13_000
    assert b"def " not in pickle.dumps(simulation)


# Stopping and looking.


@settings(max_examples=40)
@given(
    engine=st.sampled_from(ENGINES),
    dispatch=st.sampled_from(DRAWN),
    instants=st.lists(st.integers(0, 700 * MS), max_size=12),
    on_grid=st.booleans(),
    data=st.data(),
)
def test_stopping_and_looking_anywhere_changes_nothing(engine, dispatch, instants, on_grid, data):
    simulation, whole = starved(engine, dispatch), starved(engine, dispatch)
    for instant in sorted(instants):
        simulation.run_until_ps(instant // (10 * MS) * (10 * MS) if on_grid else instant)
        for i in range(data.draw(st.integers(0, 3))):
            before = simulation.observe(i)
            assert simulation.observe(i) == before
        check_conservation(simulation)
        check_blocks(simulation)
    simulation.run()
    whole.run()
    np.testing.assert_array_equal(simulation.state.requests, whole.state.requests)
    np.testing.assert_array_equal(simulation.state.streams, whole.state.streams)


def test_observe_gives_the_true_counts_whatever_routers_see():
    # 10 ms an iteration; at 25 ms the first (20 + 3 tokens = 2 blocks) decodes and the second waits
    simulation = one_instance((0, 20, 5), (0.021, 40, 5), max_num_seqs=1, metrics_interval_s=1.0)
    simulation.run(0.025)
    mean_output = 5
    assert simulation.observe(0) == {
        "n_waiting": 1,
        "n_running": 1,
        "used_blocks": 2,
        "waiting_blocks": 3,
        "held_tokens": 20 + 40 + 2 * mean_output,
    }


@pytest.mark.parametrize("i", [-1, 3, 99])
def test_observing_an_instance_that_does_not_exist_is_refused(i):
    with pytest.raises(ValueError, match=rf"instance = {i}; must be in 0 .. 2"):
        starved().observe(i)


def test_a_paused_run_includes_what_ends_and_arrives_then_but_nothing_that_starts():
    # 0-10 ms the first's prefill; the second arrives at 10 ms and is admitted by the next call
    simulation = one_instance((0, 20, 3), (0.010, 20, 3))
    simulation.run(0.010)
    assert now_ps(simulation) == 10 * MS
    assert simulation.state.requests["first_token_ps"].tolist() == [10 * MS, -1]
    assert simulation.observe(0)["n_waiting"] == 1
    simulation.run_until_ps(10 * MS + 1)
    assert simulation.observe(0)["n_waiting"] == 0


def test_the_past_is_refused_and_the_present_is_not():
    simulation = starved()
    simulation.run(0.1)
    simulation.run(0.1)
    with pytest.raises(ValueError, match=r"until = 99999999999 ps; must be >= 100000000000"):
        simulation.run_until_ps(100 * MS - 1)
    with pytest.raises(ValueError, match=r"the present"):
        simulation.run(0.05)
    assert now_ps(simulation) == 100 * MS
    assert simulation.now_s == pytest.approx(0.1, abs=1e-12)


@pytest.mark.parametrize("until_s", [-1.0, float("nan"), float("inf"), 1e8])
def test_instants_that_are_no_times_are_refused_by_name(until_s):
    with pytest.raises(ValueError, match=rf"until_s = {until_s}; must be"):
        starved().run(until_s)


@pytest.mark.parametrize("horizon_s", [-1.0, float("nan"), float("inf"), 1e8])
def test_horizons_that_are_no_times_are_refused_by_name(horizon_s):
    with pytest.raises(ValueError, match=rf"horizon_s = {horizon_s}; must be"):
        starved(horizon_s=horizon_s)


def test_running_past_the_horizon_stops_at_it():
    simulation = starved(horizon_s=0.2)
    simulation.run(5.0)
    assert now_ps(simulation) == 200 * MS
    simulation.run()
    assert now_ps(simulation) == 200 * MS


def test_result_is_a_copy_of_the_present():
    simulation = starved()
    simulation.run(0.2)
    result = simulation.result()
    before = result.records.copy()
    simulation.run()
    np.testing.assert_array_equal(result.records, before)


def test_tier_that_the_config_lacks_is_refused_with_its_row():
    with pytest.raises(ValueError, match=r"tier\[\d+\] = 2; must be < tiers = 2 of the config"):
        starved(tiers=2)


# Errors.


@pytest.mark.parametrize("chosen", [3, 4, 2**31, 2**62, -2, -(2**40)])
def test_policy_that_returns_no_instance_is_named_with_its_request(chosen):
    simulation = starved(dispatch="random")
    simulation = Simulation(
        simulation.trace,
        simulation.config,
        odd_policies.always,
        dispatch_params={"instance": chosen},
    )
    expected = (
        f"dispatch policy 'test-always' chose instance {chosen} for request 0; it must be one that "
        "accepts the request, in 0 .. 2"
    )
    with pytest.raises(ValueError, match=expected):
        simulation.run()


def test_policy_that_looks_at_an_instance_beyond_the_fleet_is_named():
    expected = r"'test-looks-beyond'.* looked at instance 1 around request 0; there is 0 .. 0"
    with pytest.raises(ValueError, match=expected):
        one_instance((0, 8, 1), dispatch="test-looks-beyond").run()


def test_order_that_gives_nan_is_named_with_the_request():
    # it would stand neither before nor behind any other
    simulation = one_instance((0, 8, 1), (0, 7, 1), (0, 8, 1), order="test-nan-key")
    with pytest.raises(ValueError, match=r"'test-nan-key' gave NaN as key of request 1"):
        simulation.run()


def test_policy_that_holds_for_ever_is_named():
    simulation = one_instance((0, 8, 1), (0, 8, 1), (0, 8, 1), dispatch="test-hold-third")
    with pytest.raises(
        NoProgressError, match=r"1 requests are still held .* 60 s .*'test-hold-third'"
    ):
        simulation.run()
    # the two before it were placed
    assert simulation.state.requests["instance"].tolist() == [0, 0, -1]


def test_policy_that_chooses_an_instance_too_small_for_the_request_is_named():
    # the request needs 2,000 blocks of 16: more than FLAT's 1,000
    trace = Trace([0.0], [32_000], [1])
    config = ClusterConfig(instances=2, profile=(FLAT, "a100_sxm/Llama-3.1-8B/tp1"))
    Simulation(trace, config, odd_policies.always, dispatch_params={"instance": 1}).run()
    simulation = Simulation(trace, config, odd_policies.always)
    with pytest.raises(
        ValueError, match=r"chose instance 0 for request 0; it must be one that accepts"
    ):
        simulation.run()


def test_a_run_that_failed_does_not_go_on():
    simulation = one_instance((0, 8, 1), (0, 8, 1), (0, 8, 1), dispatch="test-hold-third")
    for _ in range(2):
        with pytest.raises(NoProgressError, match="1 requests are still held"):
            simulation.run()


@pytest.mark.parametrize("order", ["fcfs", "sjf"])
def test_livelock_is_stopped_and_names_the_instance(order):
    # Blocks are lost on purpose: 4 of 10 are left, and a prompt of 80 tokens wants 5. Chunks of 16 fill
    # the four, the fifth evicts the request itself, over and over. Allowed are 2 requests + 1.
    simulation = one_instance(
        (0, 80, 1),
        (0, 80, 1),
        kv_blocks=10,
        max_num_seqs=8,
        max_num_batched_tokens=16,
        reserve_full_prompt=False,
        order=order,
    )
    simulation.state.instances[0]["free_blocks"] = 4
    with pytest.raises(
        NoProgressError, match="instance 0: 4 preemptions in a row without one token"
    ):
        simulation.run()


@pytest.mark.parametrize("engine", ENGINES)
def test_idle_instance_that_refuses_its_head_is_named(engine):
    simulation = one_instance((0, 80, 1), kv_blocks=10, engine=engine)
    simulation.state.instances[0]["free_blocks"] = 4
    with pytest.raises(NoProgressError, match="instance 0 is idle and does not admit its first"):
        simulation.run()


# The end of time.


@pytest.mark.parametrize("output", [1, 2, 52, 53, 60, 1000, 10**6, 10**9])
def test_run_beyond_106_days_is_an_error_that_names_the_instance(output):
    # The latest arrival, 9,158,400 s, and iterations of 799.99 s + 10 ms: 52 of them end at 9.2 * 10**6 s
    # sharp. The end of 10**6 would wrap around int64.
    simulation = one_instance((9_158_400, 8, output), kv_blocks=10**8, host_overhead_ms=799_990)
    if output <= 52:
        simulation.run()
        ends_ps = 9_158_400 * 10**12 + output * 800 * 10**12
        assert simulation.state.requests["finish_ps"][0] == ends_ps <= LATEST_PS
        return
    with pytest.raises(ValueError, match="instance 0 runs beyond 106 days"):
        simulation.run()


def test_times_near_the_end_are_still_exact():
    # 9 * 10**6 s: float64 seconds are good to 2 ns there, picoseconds are exact
    simulation = one_instance((9e6, 8, 100))
    simulation.run()
    assert simulation.state.requests["finish_ps"][0] == 9 * 10**18 + 100 * 10 * MS


def test_an_empty_trace_ends_at_once():
    config = ClusterConfig(instances=2, profile=(FLAT, SLOW), metrics_interval_s=0.1, routers=3)
    simulation = Simulation(Trace([], [], []), config, find_policy("dispatch", "power-of-two"))
    simulation.run(1.0)
    simulation.run()
    assert len(simulation.state.requests) == 0
    check_conservation(simulation)
