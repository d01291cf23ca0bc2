"""Headroom and freeness, worked by hand. FLAT instances take 10 ms an iteration; a block is 16 tokens."""

import math

import numpy as np
import pytest
from policy_calls import headroom_values as params
from policy_calls import paused, seen

from servegym.baselines import headroom
from servegym.simulator.state import DRAINING


def one_of_each_tier(k: int, **options) -> np.ndarray:
    """Return the headroom blocks of K instances, of which instance p has one request of tier p."""
    return seen(paused([(p, p, 16, 9) for p in range(k)], tiers=k, kv_blocks=128), **options)[:, 1]


def test_headroom_of_128_blocks_and_4_tiers():
    # 128 * .2 = 25.6; times exp(-2.5/3) 11.1, exp(-5/3) 4.8, exp(-2.5) 2.1
    assert one_of_each_tier(4).tolist() == [25, 11, 4, 2]


def test_linear_headroom_falls_to_nothing():
    # 25.6 times 1, 2/3, 1/3, 0
    assert one_of_each_tier(4, given=params(form=1)).tolist() == [25, 17, 8, 0]


def test_vector_headroom_is_as_given_and_nothing_beyond_ten_tiers():
    given = params(form=2, h0=0.5, h1=0.01, h3=1.0, h9=0.25, peak=0.9)
    # 128 times .5, .01, 0, 1
    assert one_of_each_tier(4, given=given).tolist() == [64, 1, 0, 128]
    assert one_of_each_tier(12, given=given).tolist() == [64, 1, 0, 128, 0, 0, 0, 0, 0, 32, 0, 0]


def test_reserve_as_a_form_is_all_blocks_but_the_spare_ones_for_tier_0_only():
    # 128 blocks less 1,600 / 16 = 100; less ceil(100 / 16) = 7; none where all are spare
    assert one_of_each_tier(4, given=params(form=3)).tolist() == [28, 0, 0, 0]
    assert one_of_each_tier(2, given=params(form=3, reserve_tokens=100)).tolist() == [121, 0]
    assert one_of_each_tier(2, given=params(form=3, reserve_tokens=2064)).tolist() == [0, 0]


@pytest.mark.parametrize("form", [0, 1, 2, 3])
def test_one_tier_has_no_headroom(form):
    assert one_of_each_tier(1, given=params(form=form, h0=0.5)).tolist() == [0]


def test_headroom_switched_off_is_none():
    assert one_of_each_tier(4, given=params(headroom=0)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(("k", "total"), [(2, 0.216), (4, 0.341), (5, 0.411), (10, 0.773)])
def test_sum_of_the_exponential_is_that_of_the_paper(k, total):
    fractions = [headroom.headroom_fraction(params(), p, k) for p in range(k)]
    assert round(sum(fractions), 3) == total


@pytest.mark.parametrize(
    ("k", "blocks"),
    [
        (2, [25, 2]),
        (3, [25, 7, 2]),
        (5, [25, 13, 7, 3, 2]),
        (10, [25, 19, 14, 11, 8, 6, 4, 3, 2, 2]),
    ],
)
def test_headroom_of_128_blocks_falls_from_25_to_2_over_any_number_of_tiers(k, blocks):
    # lambda = 2.5 / (K - 1). 25.6 times exp(-2.5) = .0821 for the last: 2.1; for K = 3 times exp(-1.25) = .2865: 7.3;
    # for K = 5 times .5353, .2865, .1534: 13.7, 7.3, 3.9; for K = 10 times .7575 again and again: 19.4, 14.7, 11.1, ..
    assert one_of_each_tier(k).tolist() == blocks


def test_headroom_counts_once_for_a_tier_however_many_requests_wait_or_run():
    rows = [(0, 0, 16, 9)] * 3 + [(0, 2, 16, 9)] * 2
    for seats in (256, 1):  # with one seat the others wait
        assert seen(paused(rows, kv_blocks=128, max_num_seqs=seats))[0, 1] == 25 + 4


def test_table_follows_parameters_that_change_during_a_run():
    simulation = paused([(p, p, 16, 9) for p in range(4)], kv_blocks=128)
    memory = np.zeros(headroom.headroom_memory(simulation.config))
    steps = [
        (params(headroom=0), [0, 0, 0, 0]),
        (params(), [25, 11, 4, 2]),
        (params(peak=0.5, decay=0), [64, 64, 64, 64]),
        (params(form=2, h3=0.5), [0, 0, 0, 64]),
        (params(form=2, h2=0.5), [0, 0, 64, 0]),
        (params(form=3), [28, 0, 0, 0]),
        (params(form=3, reserve_tokens=1000), [128 - 63, 0, 0, 0]),
        (params(form=1), [25, 17, 8, 0]),
        (params(headroom=0, form=1), [0, 0, 0, 0]),
    ]
    for given, expected in steps:
        assert seen(simulation, given, memory)[:, 1].tolist() == expected


def test_headroom_is_of_each_instances_own_blocks():
    mixed = ("a100_sxm/Llama-3.1-8B/tp1", "a100_sxm/Llama-2-7B/tp1")
    simulation = paused([(0, 0, 16, 9), (1, 0, 16, 9)], profile=mixed)
    blocks = simulation.state.engines["kv_blocks"]
    assert blocks[0] != blocks[1]
    assert seen(simulation)[:, 1].tolist() == [blocks[0] // 5, blocks[1] // 5]


# Freeness.


def test_freeness_by_hand():
    # 128 blocks. Instance 0: two seats; 33 and 16 tokens run (3 + 1 blocks), 50 tokens wait first (4), then 16.
    # Instance 1: 49 tokens run (4). Instance 2 is empty.
    rows = [(0, 3, 33, 9), (0, 3, 16, 9), (0, 1, 50, 9), (0, 3, 16, 9), (1, 3, 49, 9)]
    simulation = paused(rows, instances=3, kv_blocks=128, max_num_seqs=2)
    with_headroom, without = seen(simulation), seen(simulation, params(headroom=0))
    # (128 - 4 - 4) / 2, (128 - 4) / 1, 128 / 1; headroom of tiers 1 and 3: 11 + 2, of tier 3: 2
    assert without[:, 0].tolist() == [60, 124, 128]
    assert with_headroom[:, 0].tolist() == [(120 - 13) / 2, 122, 128]
    # Llumnix: all that wait, 4 + 1 blocks, and all requests, 4; empty: infinite
    assert without[:, 2].tolist() == [(128 - 4 - 5) / 4, 124, math.inf]


def test_draining_instance_is_less_free_by_ten_times_its_blocks():
    simulation = paused([(0, 3, 33, 9), (0, 3, 33, 9)], kv_blocks=128)
    assert seen(simulation, params(headroom=0))[0, 0] == (128 - 6) / 2
    simulation.state.instances[0]["condition"] = DRAINING
    assert seen(simulation, params(headroom=0))[0, 0] == (128 - 6 - 1280) / 2


def test_virtually_overfull_instance_has_negative_freeness():
    # 20 blocks run of 21, 21 wait
    simulation = paused([(0, 0, 320, 9), (0, 0, 336, 1)], kv_blocks=21, tiers=1)
    assert seen(simulation)[0, 0] == 21 - 20 - 21


def test_freeness_of_llumnix_for_migration_by_hand():
    # 200 blocks, watermark 2. Instance 0: 4 run, 4 + 1 wait: 198 - 4 - 5 = 189 for 2 running + 1.
    # Instance 1: one priority request of 4 blocks; the reserve is 200 - 100: 198 - 4 - 100 for 1.
    rows = [(0, 3, 33, 9), (0, 3, 16, 9), (0, 1, 50, 9), (0, 3, 16, 9), (1, 0, 49, 9)]
    simulation = paused(rows, instances=3, kv_blocks=200, max_num_seqs=2, watermark=0.01)
    assert seen(simulation)[:, 3].tolist() == [63, 94, math.inf]
