"""N-tier dispatch. FLAT instances take 10 ms an iteration; a block is 16 tokens."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_calls import Asked, headroom_values, paused, seen

from servegym.baselines.simulate import simulate
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import ABSENT, DRAINING
from servegym.simulator.views import HOLD
from servegym.traces import generate

FITS_NONE = 100_000


def test_headroom_of_an_urgent_request_sends_others_elsewhere():
    # 128 blocks. Instance 0: tier 0, 2 blocks; instance 1: tier 3, 20 blocks.
    simulation = paused([(0, 0, 32, 9), (1, 3, 320, 9)], kv_blocks=128)
    # without headroom 126 > 108; with it 126 - 25 = 101 < 108 - 2 = 106
    assert Asked(simulation, "dispatch", "n-tier", headroom=0).dispatch() == 0
    assert Asked(simulation, "dispatch", "n-tier").dispatch() == 1
    # a peak of 10 %: 126 - 12 = 114 > 108 - 1
    assert Asked(simulation, "dispatch", "n-tier", peak=0.1).dispatch() == 0


def test_first_index_wins_ties():
    asked = Asked(paused([(0, 3, 32, 9)], instances=4, kv_blocks=128), "dispatch", "n-tier")
    assert [asked.dispatch() for _ in range(3)] == [1, 1, 1]


def test_only_accepting_instances_are_chosen():
    simulation = paused([(0, 3, 320, 9), (1, 3, 32, 9)], instances=4, kv_blocks=128)
    asked = Asked(simulation, "dispatch", "n-tier")
    assert asked.dispatch() == 2
    simulation.state.instances["condition"][2:] = DRAINING, ABSENT
    assert asked.dispatch() == 1
    too_long = paused([], (0, FITS_NONE), instances=2, kv_blocks=128)
    assert Asked(too_long, "dispatch", "n-tier").dispatch() == HOLD


def play(n_tiers: int, system: str = "n-tier", **params: float) -> np.ndarray:
    """Return the requests of a run that preempts on 4 instances."""
    trace = generate("azure-conv", 600, 12.0, 1)
    if n_tiers > 1:
        trace = trace.assign_tiers([1 / n_tiers] * n_tiers, seed=0)
    options = {"kv_blocks": 700, "tiers": n_tiers, "order": "priority", "watermark": 0.0}
    config = ClusterConfig(instances=4, **options)
    policy = find_policy("dispatch", system)
    simulation = Simulation(trace, config, policy, dispatch_params=params)
    simulation.run()
    requests = simulation.state.requests
    assert (requests["preemptions"] > 0).any()
    assert len(set(requests["instance"].tolist())) == 4
    return requests


@pytest.mark.parametrize("form", [0, 1, 2])
def test_case_08_one_tier_is_the_untiered_policy_request_by_request(form):
    """The log with one tier must be the one that a policy without tiers gives."""
    np.testing.assert_array_equal(play(1, form=form, h0=0.3), play(1, headroom=0))


def play_system(n_tiers: int, system: str) -> pd.DataFrame:
    """Return the requests of a run of a whole system, with moves between 4 instances."""
    trace = generate("azure-conv", 400, 12.0, 1)
    if n_tiers > 1:
        trace = trace.assign_tiers([1 / n_tiers] * n_tiers, seed=0)
    options = {"instances": 4, "kv_blocks": 700, "tiers": n_tiers, "watermark": 0.0}
    requests = simulate(trace, system=system, **options).requests
    assert np.asarray(requests["migrations"]).any()
    return requests


def test_one_tier_migrates_as_without_headroom_request_by_request():
    pd.testing.assert_frame_equal(play_system(1, "n-tier"), play_system(1, "n-tier:headroom=0"))


def test_headroom_changes_what_a_system_with_several_tiers_does():
    assert not play_system(4, "n-tier").equals(play_system(4, "n-tier:headroom=0"))


def test_four_tiers_without_any_headroom_are_freeness_request_by_request():
    nothing = play(4, headroom=0)
    np.testing.assert_array_equal(play(4, form=2), nothing)
    np.testing.assert_array_equal(play(4, peak=0), nothing)
    assert (play(4)["instance"] != nothing["instance"]).any()


@st.composite
def fleets(draw):
    """Draw what runs on each of 6 instances: nothing waits."""
    row = st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 200), st.integers(5, 60))
    return draw(st.lists(row, max_size=25))


@given(fleets(), st.sampled_from([0.005, 0.025, 0.045]))
@settings(max_examples=60, deadline=None)
def test_with_nothing_waiting_its_order_is_llumnixs_without_reserve(rows, until_s):
    simulation = paused(rows, until_s=until_s, instances=6, kv_blocks=400, watermark=0.0)
    assert sum(simulation.observe(i)["n_waiting"] for i in range(6)) == 0
    freeness, _, steps, _ = seen(simulation, headroom_values(headroom=0)).T
    # as orders: ties in the one are ties in the other
    np.testing.assert_array_equal(
        np.sign(freeness[:, None] - freeness),
        np.sign(np.nan_to_num(steps)[:, None] - np.nan_to_num(steps)),
    )
    chosen = Asked(simulation, "dispatch", "n-tier", headroom=0).dispatch()
    alike = Asked(simulation, "dispatch", "llumnix-dispatch", headroom=0).dispatch()
    assert freeness[chosen] == freeness[alike] == freeness.max()


def test_both_differ_where_more_than_the_head_waits():
    # Two seats each. Instance 0: 2 run, 1 block each, and 3 of 30 blocks wait; instance 1: 2 of 31 blocks run.
    rows = [(0, 3, 16, 9)] * 2 + [(0, 3, 480, 9)] * 3 + [(1, 3, 496, 9)] * 2
    simulation = paused(rows, kv_blocks=200, max_num_seqs=2)
    # n-tier: (200 - 2 - 30) / 2 = 84 > (200 - 62) / 2; Llumnix: (200 - 2 - 90) / 5 = 21.6 < 69
    assert Asked(simulation, "dispatch", "n-tier", headroom=0).dispatch() == 0
    assert Asked(simulation, "dispatch", "llumnix-dispatch", headroom=0).dispatch() == 1
