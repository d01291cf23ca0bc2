"""Instances that start, drain and leave, by hand (10 ms an iteration)."""

import numpy as np
import pytest
from test_faults import crash, load, times

from servegym.simulator.policy import Param, scaling_policy
from servegym.simulator.state import ABSENT, ACTIVE, DOWN, DRAINING, STARTING
from servegym.testing.conservation import check_drained

MS = 10**9


@scaling_policy(
    source="test: a script", name="test-scaling-script", memory=1,
    params=(Param("up", -1, "ms", -1, 1e6), Param("down", -1, "ms", -1, 1e6)),
)  # fmt: skip
def script(cluster, params, memory, rng):
    """Return +1 at `up` ms, -1 at `down` ms; counts its calls (ticks of 10 ms)."""
    now_ms = memory[0] * 10
    memory[0] += 1
    if now_ms == params[0]:
        return 1
    return -1 if now_ms == params[1] else 0


def scaled(*rows, up: float = -1, down: float = -1, **options):
    """Return a simulation whose fleet changes at those times, ms."""
    script_options = {"scaling": "test-scaling-script", "scaling_interval_s": 0.01}
    return load(*rows, scaling_params={"up": up, "down": down}, **script_options, **options)


def test_instance_starts_after_its_delay():
    # ordered at 10, ready at 25: B, at the gateway since 12, is placed then; charged 90 + 80 ms
    simulation = scaled(
        (0, 8, 9), (12, 8, 1), up=10, instances=1, max_instances=2, startup_delay_s=0.015,
        max_num_seqs=1, max_local_waiting=0,
    )  # fmt: skip
    simulation.run()
    assert times(simulation) == [90, 35]
    summary = simulation.result().summary()
    assert summary["instance_seconds"] == pytest.approx(0.170)
    assert (summary["scale_ups"], summary["scale_downs"]) == (1, 0)


def test_instance_that_starts_at_once_is_used_at_once():
    simulation = scaled(
        (0, 8, 9), (12, 8, 1), up=20, instances=1, max_instances=2, startup_delay_s=0.0,
        max_num_seqs=1, max_local_waiting=0,
    )  # fmt: skip
    simulation.run()
    assert times(simulation) == [90, 30]


def test_instance_drains_and_is_charged_until_its_last_request_ends():
    # at 10 instance 1 drains (as few run as on 0, larger index); it ends its request at 30
    simulation = scaled((0, 8, 9), (0, 8, 3), (12, 8, 1), down=10, instances=2)
    simulation.run(0.029)
    placed = simulation.state.requests["instance"]
    assert simulation.state.instances["condition"].tolist() == [ACTIVE, DRAINING]
    assert placed[2] == 0
    simulation.run()
    last = times(simulation)[int(np.flatnonzero(placed == 1)[0])]
    assert simulation.state.instances["condition"].tolist() == [ACTIVE, ABSENT]
    end = max(times(simulation))
    assert simulation.result().summary()["instance_seconds"] == pytest.approx((end + last) / 1e3)
    check_drained(simulation)


def test_draining_instance_is_the_first_to_come_back():
    rows, options = ((0, 8, 9), (0, 8, 9)), {"instances": 2, "max_instances": 3}
    simulation = scaled(*rows, down=10, up=20, **options)
    for until_s, condition in ((0.015, DRAINING), (0.025, ACTIVE)):
        simulation.run(until_s)
        assert simulation.state.instances["condition"].tolist() == [ACTIVE, condition, ABSENT]


def test_at_least_min_instances_stay():
    simulation = scaled((0, 8, 9), down=10, instances=2, min_instances=2)
    simulation.run()
    assert simulation.state.instances["condition"].tolist() == [ACTIVE, ACTIVE]


def test_starting_instance_that_crashes_begins_its_start_anew():
    # ordered at 10, crashed in 15-25: ready at 35 instead of 20
    simulation = scaled(
        (0, 8, 30), up=10, instances=1, max_instances=2, startup_delay_s=0.01,
        faults=(crash(1, 15, 10),),
    )  # fmt: skip
    for until_ms, condition in ((12, STARTING), (20, DOWN), (30, STARTING), (35, ACTIVE)):
        simulation.run(until_ms / 1e3)
        assert simulation.state.instances["condition"][1] == condition


def test_crash_of_draining_and_absent_instances():
    faults = (crash(1, 15, 10), crash(2, 15, 10))
    options = {"instances": 2, "max_instances": 3, "on_failure": "fail", "faults": faults}
    simulation = scaled((0, 8, 30), (0, 8, 30), down=10, **options)
    simulation.run(0.016)
    assert simulation.state.instances["condition"].tolist() == [ACTIVE, DOWN, ABSENT]
    simulation.run(0.025)
    assert simulation.state.instances["condition"].tolist() == [ACTIVE, ABSENT, ABSENT]
    assert simulation.state.instances["charged_until_ps"][1] == 25 * MS
    assert simulation.state.control[0]["n_crashes"] == 1


def test_ticks_without_traffic_ask_the_policy_and_end_with_the_work():
    # asked at 0, 10, .. 60 000 (an hour would be the same); the only request ends at 60 010
    simulation = scaled((60_000, 8, 1), instances=2)
    simulation.run()
    assert simulation.state.memory[-1] == 6001
    assert times(simulation) == [60_010]
    summary = simulation.result().summary()
    assert summary["instance_seconds"] == pytest.approx(0.020)  # from the first arrival on
    assert simulation.now_s == pytest.approx(60.01)
