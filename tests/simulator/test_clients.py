"""Time limits and retries by hand (10 ms an iteration), and runs that are paused anywhere."""

from typing import Any

import numpy as np
import pytest
from flat_profile import FLAT
from test_faults import load, play, times

from servegym.simulator.config import ClusterConfig, Fault
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import CANCELLED, FINISHED
from servegym.testing.conservation import check_conservation, check_drained
from servegym.traces import Trace

MS = 10**9


def test_waiting_request_is_cancelled_at_its_limit_and_a_running_one_when_its_iteration_ends():
    # A runs, its limit is 25: cancelled at 30 with 3 tokens. B waits: cancelled at 26. C runs in 30-40, which ends it
    # although its limit is 31.
    simulation = play((0, 20, 9), (1, 20, 1), (6, 20, 1), max_num_seqs=1, timeout_s=0.025)
    assert simulation.state.requests["status"].tolist() == [CANCELLED, CANCELLED, FINISHED]
    assert times(simulation) == [30, 26, 40]
    assert simulation.state.requests["generated"].tolist() == [3, 0, 1]
    check_drained(simulation)


def test_limit_at_the_end_of_an_iteration_comes_after_it():
    simulation = play((0, 20, 2), (0, 20, 3), timeout_s=0.02)
    assert simulation.state.requests["status"].tolist() == [FINISHED, CANCELLED]
    assert times(simulation) == [20, 20]
    assert simulation.state.requests["generated"].tolist() == [2, 2]


def test_cancellation_at_the_gateway_and_the_seat_that_one_leaves():
    # pull, one seat: B is cancelled at 15 at the gateway, A (limit 14) at 20; C has the seat from 20 on
    options = {"max_num_seqs": 1, "max_local_waiting": 0, "timeout_s": 0.014}
    simulation = play((0, 8, 9), (1, 8, 1), (16, 8, 1), **options)
    assert times(simulation) == [20, 15, 30]
    assert simulation.result().summary()["cancelled"] == 2
    check_drained(simulation)


def test_request_in_a_static_batch_is_not_cancelled():
    options = {"engine": "static", "batch_size": 1, "timeout_s": 0.005}
    simulation = play((0, 8, 3), (0, 8, 1), **options)
    assert simulation.state.requests["status"].tolist() == [FINISHED, CANCELLED]
    assert times(simulation) == [30, 5]


def test_time_limits_by_tier():
    trace = Trace(np.zeros(2), [8, 8], [9, 9], tier=np.array([0, 1]))
    config = ClusterConfig(instances=1, profile=FLAT, tiers=2, timeout_s=(0.02, None))
    simulation = Simulation(trace, config, find_policy("dispatch", "least-requests"))
    simulation.run()
    assert times(simulation) == [20, 90]


def test_client_asks_again_from_nothing_after_ever_longer_waits():
    # limit 15: cancelled at 20 (2 tokens); again 5 later, 25-45; again 10 later, 55-75, for good
    options: dict[str, Any] = {"timeout_s": 0.015, "client_retries": 2, "retry_backoff_s": 0.005}
    simulation = load((0, 20, 9), **options)
    simulation.run(0.022)
    assert simulation.state.requests[0]["status"] == CANCELLED
    assert simulation.state.requests[0]["generated"] == 2
    check_conservation(simulation)
    simulation.run(0.026)
    assert simulation.state.requests[0]["generated"] == 0
    assert simulation.state.requests[0]["first_token_ps"] == -1
    simulation.run()
    assert times(simulation) == [75] and times(simulation, "first_token_ps") == [65]
    assert simulation.state.requests[0]["attempt"] == 2
    assert simulation.result().summary()["client_retries"] == 2


def test_no_client_asks_again_at_or_after_the_horizon():
    # cancelled at 20, it would ask again at 25
    options: dict[str, Any] = {"timeout_s": 0.015, "client_retries": 1, "retry_backoff_s": 0.005}
    config = ClusterConfig(instances=1, profile=FLAT, **options)
    trace = Trace(np.zeros(1), [20], [9])
    dispatch = find_policy("dispatch", "least-requests")
    simulation = Simulation(trace, config, dispatch, horizon_s=0.025)
    simulation.run()
    assert simulation.state.requests[0]["status"] == CANCELLED
    assert simulation.state.requests[0]["attempt"] == 0


def test_overdue_request_of_a_crashed_instance_is_cancelled_with_the_crash():
    # limit 13, in the iteration of 10-20, which is lost at 16
    fault = Fault(kind="crash", instance=0, at_s=0.016, duration_s=0.05)
    simulation = play((0, 8, 9), timeout_s=0.013, faults=(fault,))
    assert times(simulation) == [16] and simulation.state.requests[0]["generated"] == 1


@pytest.mark.parametrize("seed", range(3))
def test_pauses_anywhere_change_nothing(seed):
    random = np.random.default_rng(seed)
    n = 40
    trace = Trace(
        np.sort(random.uniform(0, 0.4, n)), random.integers(1, 60, n), random.integers(1, 20, n)
    )
    kinds = ("crash", "slow", "metrics", "crash")
    faults = tuple(
        Fault(kind=kind, instance=k % 3, at_s=0.05 + 0.07 * k, duration_s=0.06)
        for k, kind in enumerate(kinds)
    )
    config = ClusterConfig(
        instances=3, profile=FLAT, max_num_seqs=3, kv_blocks=12, max_local_waiting=0, faults=faults,
        timeout_s=0.15, client_retries=2, retry_backoff_s=0.01, metrics_interval_s=0.02,
    )  # fmt: skip
    straight, paused = (
        Simulation(trace, config, find_policy("dispatch", "least-kv")) for _ in range(2)
    )
    straight.run()
    end_ps = int(straight.state.requests["finish_ps"].max())
    for instant in sorted(random.integers(0, end_ps, 60)):
        paused.run_until_ps(int(instant))
        check_conservation(paused)
        paused.observe(0)
    paused.run()
    np.testing.assert_array_equal(straight.state.requests, paused.state.requests)
    np.testing.assert_array_equal(straight.state.gateway, paused.state.gateway)
    assert (straight.state.requests["status"] == CANCELLED).any()
    assert straight.state.control[0]["n_crash_retries"] > 0
