"""Llumnix's dispatch, of OSDI '24 and later. FLAT instances take 10 ms an iteration; a block is 16 tokens."""

import pytest
from policy_calls import Asked, paused

from servegym.simulator.state import ABSENT
from servegym.simulator.views import HOLD

# 200 blocks, reserve 200 - 1600 / 16 = 100. Instance 0: a priority request of 10 blocks and a normal one of 10,
# (200 - 20) / 2 = 90; instance 1: three normal ones of 10, (200 - 30) / 3 = 56.7. Less the reserve: 40 and 23.3.
PRIORITY_THERE = [(0, 0, 160, 90), (0, 1, 160, 90)]
NORMAL_THERE = [(1, 1, 160, 90)] * 3


@pytest.mark.parametrize(
    ("tier", "headroom", "chosen"),
    [
        (0, 1, 0),  # priority: 90 where priority is, 23.3 where it is not
        (1, 1, 1),  # normal: 40 and 56.7
        (3, 1, 1),  # every tier but 0 is normal
        (0, 0, 0),  # no reserve: 90 and 56.7
        (1, 0, 0),
    ],
)
def test_reserve_keeps_priority_and_normal_requests_apart(tier, headroom, chosen):
    simulation = paused(PRIORITY_THERE + NORMAL_THERE, (tier, 16), kv_blocks=200)
    asked = Asked(simulation, "dispatch", "llumnix-dispatch", headroom=headroom)
    assert asked.dispatch() == chosen


# What an asker sees of one instance that holds priority requests or not: compared with instance 1, which has 3 normal
# requests and as many blocks in use that the reserve decides. (asker, instance 0 holds priority, reserve is subtracted)
@pytest.mark.parametrize(
    ("asker", "holder", "is_subtracted"),
    [(0, 0, False), (0, 1, True), (1, 0, True), (1, 1, False)],
)
def test_table_of_the_binary_reserve(asker, holder, is_subtracted):
    # Instance 0: one request, 150 of 200 blocks free, 50 less the reserve. The bar: one request of the asker's own
    # class with 100 blocks free (a reserve is never subtracted there, since it holds the asker's class).
    rows = [(0, holder, 50 * 16, 90), (1, asker, 100 * 16, 90)]
    simulation = paused(rows, (asker, 16), kv_blocks=200)
    chosen = Asked(simulation, "dispatch", "llumnix-dispatch").dispatch()
    assert chosen == (1 if is_subtracted else 0)


@pytest.mark.parametrize("asker", [0, 1, 3])
def test_headroom_by_tier_takes_the_reserves_place_whoever_asks(asker):
    # 200 blocks, 4 tiers, peak .2: 40, 17, 7, 3. Instance 0 has tiers 0 and 1 on 10 blocks each: (180 - 57) / 2 = 61.5;
    # instance 1 has tier 1 three times, 23 blocks in all: (177 - 17) / 3 = 53.3.
    # Peak .3: 60 and 26 blocks: (180 - 86) / 2 = 47 and (177 - 26) / 3 = 50.3.
    # The reserve, where tier 0 is: 200 - 10 blocks, (180 - 190) / 2 = -5
    rows = [*PRIORITY_THERE, (1, 1, 160, 90), (1, 1, 160, 90), (1, 1, 48, 90)]
    simulation = paused(rows, (asker, 16), kv_blocks=200)
    for options, chosen in (({}, 0), ({"peak": 0.3}, 1), ({"form": 3, "reserve_tokens": 160}, 1)):
        asked = Asked(simulation, "dispatch", "llumnix-dispatch", headroom=2, **options)
        assert asked.dispatch() == chosen


def test_reserve_leaves_the_spare_tokens_in_whole_blocks():
    # 40 blocks, 100 spare tokens: 7 blocks, a reserve of 33. A normal asker sees 39 - 33 = 6 beside a priority request,
    # and 40 - 35 = 5 or 40 - 33 = 7 on the other instance.
    for blocks, chosen in ((35, 0), (33, 1)):
        rows = [(0, 0, 16, 9), (1, 1, 16 * blocks, 9)]
        simulation = paused(rows, (1, 16), kv_blocks=40, watermark=0.0)
        asked = Asked(simulation, "dispatch", "llumnix-dispatch", reserve_tokens=100)
        assert asked.dispatch() == chosen
    # an instance smaller than the spare tokens has no reserve
    small = Asked(
        paused([(0, 0, 32, 9), (1, 1, 48, 9)], (1, 16), kv_blocks=40),
        "dispatch",
        "llumnix-dispatch",
    )
    assert small.dispatch() == 0


def test_with_one_tier_nobody_has_priority():
    # 150 free of 200 and 140: a reserve would make it 40 or 50
    rows = [(0, 0, 50 * 16, 90), (1, 0, 60 * 16, 90)]
    simulation = paused(rows, tiers=1, kv_blocks=200)
    assert Asked(simulation, "dispatch", "llumnix-dispatch").dispatch() == 0


def test_empty_instances_come_first_and_share_and_those_that_do_not_accept_never():
    simulation = paused(PRIORITY_THERE, (1, 16), instances=3, kv_blocks=200)
    asked = Asked(simulation, "dispatch", "llumnix-dispatch")
    assert [asked.dispatch() for _ in range(4)] == [1, 1, 2, 1]
    simulation.state.instances["condition"][1] = ABSENT
    assert asked.dispatch() == 2
    simulation.state.instances["condition"] = ABSENT
    assert asked.dispatch() == HOLD


def test_most_remaining_steps_counts_all_that_wait():
    # Two seats, 100 blocks. Instance 0: 2 run on 2 blocks, 30 blocks wait in 1: (100 - 2 - 30) / 3 = 22.7.
    # Instance 1: 3 requests of 10 blocks, 1 waits: (100 - 30) / 3 = 23.3
    rows = [(0, 3, 16, 9)] * 2 + [(0, 3, 480, 9)] + [(1, 3, 160, 9)] * 3
    simulation = paused(rows, kv_blocks=100, max_num_seqs=2)
    assert Asked(simulation, "dispatch", "llumnix-steps").dispatch() == 1


def test_idle_ties_rotate():
    asked = Asked(paused([(0, 3, 16, 9)], instances=3), "dispatch", "llumnix-steps")
    assert [asked.dispatch() for _ in range(4)] == [1, 1, 2, 1]


def test_busy_instances_are_used_only_when_all_are_or_not_at_all():
    # 22.7 and 23.3 steps, as above
    rows = [(0, 3, 16, 9)] * 2 + [(0, 3, 480, 9)] + [(1, 3, 160, 9)] * 3
    simulation = paused(rows, kv_blocks=100, max_num_seqs=2)
    for busy_below, hold, answer in ((10, 1, 1), (23, 1, 1), (24, 1, HOLD), (24, 0, 1)):
        params = {"busy_below": busy_below, "hold": hold}
        assert Asked(simulation, "dispatch", "llumnix-steps", **params).dispatch() == answer
