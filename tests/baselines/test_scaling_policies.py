"""Scaling by freeness. FLAT instances take 10 ms an iteration; a block is 16 tokens."""

import math

import numpy as np
import pytest
from policy_calls import Asked, paused

from servegym.baselines.scaling.freeness import ADD, DRAIN, KEEP, band_order
from servegym.baselines.systems import find_system
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import ABSENT, ACTIVE, DOWN, DRAINING, FINISHED
from servegym.traces import Trace

S = 10**12


def at(simulation, now_s: float) -> None:
    """Let the clock go on; instances follow when they are looked at."""
    simulation.state.shared[0]["now_ps"] = round(now_s * S)


@pytest.mark.parametrize(
    ("mean", "order"), [(-0.6, ADD), (-0.5, KEEP), (1.0, KEEP), (1.5, KEEP), (1.6, DRAIN)]
)
def test_band_as_published(mean, order):
    assert band_order(2, 2 * mean, -0.5, 1.5) == order


def test_mean_is_over_active_instances_without_headroom():
    # 100 blocks, tier 0: F = 90, 50 and, draining, 1 - 1000; headroom would take 20 of each
    rows = [(0, 0, 150, 50), (1, 0, 790, 50), (2, 0, 10, 50)]
    for headroom, mean in ((0, 70), (1, 50)):
        for low, high, order in (
            (mean - 1, mean + 1, KEEP),
            (mean + 0.1, 1e6, ADD),
            (-1e6, mean - 0.1, DRAIN),
        ):
            simulation = paused(rows, kv_blocks=100)
            simulation.state.instances["condition"][2] = DRAINING
            band = {"low": low, "high": high, "headroom": headroom}
            assert Asked(simulation, "scaling", "freeness", **band).scale() == order


def test_a_change_is_followed_by_a_cool_down():
    simulation = paused([(0, 0, 790, 50)], instances=3, kv_blocks=100)
    asked = Asked(simulation, "scaling", "freeness", low=200, high=300)
    orders = []
    for now_s in range(1, 25):
        at(simulation, now_s)
        orders.append((now_s, asked.scale()))
    assert [now_s for now_s, order in orders if order == ADD] == [1, 11, 21]
    assert {order for _, order in orders} == {ADD, KEEP}


def test_without_traffic_it_drains_to_the_least_and_stays():
    # F = M = 100 on every instance, above any band; the engine refuses to go below min_instances, here 1
    simulation = paused([], instances=3, kv_blocks=100)
    asked, changes = Asked(simulation, "scaling", "freeness"), []
    condition = simulation.state.instances["condition"]
    for now_s in range(100):
        at(simulation, now_s)
        order = asked.scale()
        assert order in (DRAIN, KEEP)
        if order == DRAIN and (condition == ACTIVE).sum() > 1:
            condition[np.flatnonzero(condition == ACTIVE)[-1]] = ABSENT
            changes.append(now_s)
    assert changes == [0, 10]


def test_an_order_that_changed_nothing_does_not_delay_the_next_burst():
    # the last instance is idle, F = 100, and told to drain again and again
    simulation = paused([], instances=1, kv_blocks=100)
    asked = Asked(simulation, "scaling", "freeness", low=30, high=40)
    for now_s in (49, 50):
        at(simulation, now_s)
        assert asked.scale() == DRAIN
    asked.params[-3:-1] = 110, 120  # as if 100 blocks had become too few
    at(simulation, 51)
    assert asked.scale() == ADD


@pytest.mark.parametrize(
    ("after", "next_order"), [(DOWN, ADD), (DRAINING, KEEP), (ABSENT, KEEP), (ACTIVE, ADD)]
)
def test_a_crash_is_no_drain(after, next_order):
    # F = 90 and 100: told to drain, though no instance may be spared. Then one crashes, and 90 blocks are too few.
    simulation = paused([(0, 0, 150, 50)], instances=2, kv_blocks=100)
    asked = Asked(simulation, "scaling", "freeness", low=30, high=40)
    at(simulation, 50)
    assert asked.scale() == DRAIN
    simulation.state.instances["condition"][1] = after
    asked.params[-3:-1] = 110, 120
    at(simulation, 51)
    assert asked.scale() == next_order


def test_no_active_instance_means_add_and_no_division():
    simulation = paused([], instances=2, kv_blocks=100)
    simulation.state.instances["condition"] = DOWN
    asked = Asked(simulation, "scaling", "freeness")
    assert asked.scale() == ADD
    assert all(math.isfinite(value) for value in asked.memory)


@pytest.mark.parametrize(("signal", "mean"), [(0, (70 + 100) / 2), (1, (55 / 3 + 95) / 2)])
def test_llumnixs_signal_counts_all_that_wait_and_the_watermark(signal, mean):
    # 100 blocks, 5 of them watermark. Instance 0 has one seat: 20 blocks run, 10 and 10 wait. F = (100 - 20 - 10) / 1,
    # Llumnix's (95 - 20 - 20) / 3. Instance 1 is idle, as if it had one request: 100 and 95.
    rows = [(0, 0, 310, 50), (0, 0, 160, 50), (0, 0, 160, 50)]
    for low, high, order in (
        (mean - 0.1, mean + 0.1, KEEP),
        (mean + 0.1, 1e6, ADD),
        (-1e6, mean - 0.1, DRAIN),
    ):
        simulation = paused(rows, instances=2, kv_blocks=100, max_num_seqs=1, watermark=0.05)
        band = {"signal": signal, "low": low, "high": high}
        assert Asked(simulation, "scaling", "freeness", **band).scale() == order


def test_llumnixs_signal_without_traffic_is_finite():
    # 100 blocks, none of them watermark
    for high, order in ((99, DRAIN), (100, KEEP)):
        simulation = paused([], instances=2, kv_blocks=100, watermark=0)
        asked = Asked(simulation, "scaling", "freeness", signal=1, low=10, high=high)
        assert asked.scale() == order


def test_an_inverted_band_is_refused():
    message = r"freeness: low = 3\.0; must be <= high = 1\.0"
    with pytest.raises(ValueError, match=message):
        ClusterConfig(scaling="freeness", scaling_params={"low": 3, "high": 1})
    with pytest.raises(ValueError, match=r"low = 3\.0; must be <= high = 1\.5"):
        ClusterConfig(scaling="freeness", scaling_params={"low": 3})
    # set one after the other, together they are a band
    system = find_system("least-requests:scaling=freeness,low=3,high=5")
    assert system.configure(ClusterConfig()).scaling_params == {"low": 3, "high": 5}


def test_on_the_engine_it_rests_without_traffic_and_grows_in_a_burst():
    # a request every 10 s until 200 s, then 50 a second for 6 s: 180,000 tokens of prompt, 12,800 fit an instance
    arrival_s = np.concatenate([np.arange(0.0, 200.0, 10.0), 200 + np.arange(300) / 50])
    trace = Trace(arrival_s, np.full(320, 600), np.full(320, 200))
    config = ClusterConfig(instances=4, scaling="freeness", kv_blocks=800)
    simulation = Simulation(trace, config, find_policy("dispatch", "least-requests"))
    n_active = []
    for now_s in range(0, 211, 5):
        simulation.run(now_s)
        n_active.append(int((simulation.state.instances["condition"] == ACTIVE).sum()))
    # drained at 0, 10 and 20 s; nothing until 200 s; ordered at 201 s, ready 5 s later
    assert n_active == [3] * 2 + [2] * 2 + [1] * 37 + [1, 2]
    simulation.run()
    assert (simulation.state.requests["status"] == FINISHED).all()
