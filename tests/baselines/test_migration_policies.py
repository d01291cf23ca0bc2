"""Migration policies, worked by hand. FLAT instances take 10 ms an iteration; a block is 16 tokens.

At 15 ms every prompt is computed and the second iteration is in flight: 10 tokens hold 1 block, 150 hold 10.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_calls import Asked, paused

from servegym.simulator import state as layout
from servegym.simulator.build import link_state, records
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import ABSENT, DRAINING, FINISHED
from servegym.traces import Trace

PLAIN = {"headroom": 0}
PUBLISHED = {"headroom": 0, "closer": 0}


def moves(name: str, rows, until_s: float = 0.015, instances: int = 2, **params):
    """Return what a policy moves of the rows, on instances of 100 blocks."""
    simulation = paused(rows, until_s=until_s, instances=instances, kv_blocks=100)
    return Asked(simulation, "migration", name, **params).moves()


# N-tier.


def test_one_request_moves_from_the_least_free_to_the_freest():
    # F: (100 - 4) / 4 = 24, 99, 98 / 2 = 49. Margin .1: one source, one destination; all alike, the first moves.
    rows = [(0, 1, 10, 50)] * 4 + [(1, 1, 10, 50)] + [(2, 1, 10, 50)] * 2
    assert moves("n-tier", rows, instances=3, **PLAIN) == [(0, 1, 0)]


def test_the_largest_tier_moves_first_then_the_fewest_blocks():
    rows = [(0, 1, 10, 50), (0, 2, 150, 50), (0, 2, 40, 50), (0, 2, 100, 50), (0, 0, 10, 50)]
    assert moves("n-tier", rows, **PLAIN) == [(0, 1, 2)]


def test_nothing_moves_below_the_threshold():
    # F: (100 - 20) / 2 = 40 and (100 - 2) / 2 = 49
    rows = [(0, 1, 150, 50)] * 2 + [(1, 1, 10, 50)] * 2
    assert moves("n-tier", rows, threshold=9.1, **PUBLISHED) == []
    assert moves("n-tier", rows, threshold=9.0, **PUBLISHED) == [(0, 1, 0)]


def test_headroom_is_a_signal_of_its_own():
    # 100 blocks: H = 20, 8, 3, 1. F without: 99 and 90; with: 79 and 89
    rows = [(0, 0, 10, 50), (1, 3, 150, 50)]
    assert moves("n-tier", rows, **PUBLISHED) == [(1, 0, 1)]
    assert moves("n-tier", rows, headroom=1, closer=0) == [(0, 1, 0)]


def test_what_does_not_fit_the_destination_stays():
    # F: 20 / 2 = 10 and 10 / 1: 100 - 90 = 10 free; the wide ones of 40 blocks do not fit
    rows = [(0, 2, 630, 50), (0, 1, 630, 50), (1, 1, 1270, 50)]
    assert moves("n-tier", rows, threshold=0, **PUBLISHED) == []
    rows = [(0, 2, 630, 50), (0, 1, 630, 50), (0, 0, 10, 50), (1, 1, 1270, 50)]
    assert moves("n-tier", rows, threshold=0, **PUBLISHED) == [(0, 1, 2)]


def test_lowest_is_paired_with_highest_and_the_second_with_the_second():
    # F: 24 (4 x 1), 23.75 (4 x 1 and 1 more block), 99, 98.9..: margins of 1
    rows = [(0, 1, 10, 50)] * 4 + [(1, 1, 10, 50)] * 3 + [(1, 1, 20, 50)]
    rows += [(2, 1, 20, 50), (3, 1, 10, 50)]
    assert moves("n-tier", rows, instances=4, margin=1, **PLAIN) == [(1, 3, 4), (0, 2, 0)]


def test_waiting_requests_move_at_once_and_before_running_ones_of_their_kind():
    # one seat: request 0 runs, 1 and 2 wait; instance 1 is empty
    rows = [(0, 2, 10, 50), (0, 2, 10, 50), (0, 2, 10, 50)]
    simulation = paused(rows, until_s=0.015, instances=2, kv_blocks=100, max_num_seqs=1)
    assert Asked(simulation, "migration", "n-tier", **PUBLISHED).moves() == [(0, 1, 1)]
    urgent = [(0, 3, 10, 50), (0, 2, 10, 50)]
    simulation = paused(urgent, until_s=0.015, instances=2, kv_blocks=100, max_num_seqs=1)
    assert Asked(simulation, "migration", "n-tier", **PUBLISHED).moves() == [(0, 1, 0)]


def test_queues_even_out_where_freeness_sees_their_heads_only():
    # One seat each, all prompts 1 block: F = 98 on instances 0 (4 wait) and 1 (1 waits), 18 less on 0 by its long head.
    rows = [(0, 2, 10, 50), (0, 1, 300, 50)] + [(0, 2, 10, 50)] * 3 + [(1, 2, 10, 50)] * 2
    simulation = paused(rows, until_s=0.015, instances=2, kv_blocks=100, max_num_seqs=1)
    asked = Asked(simulation, "migration", "n-tier", **PLAIN)
    assert asked.moves() == [(0, 1, 2)]
    # 3 and 2 would become 2 and 3
    rows = [(0, 2, 10, 50), (0, 1, 300, 50)] + [(0, 2, 10, 50)] * 2 + [(1, 2, 10, 50)] * 3
    simulation = paused(rows, until_s=0.015, instances=2, kv_blocks=100, max_num_seqs=1)
    assert Asked(simulation, "migration", "n-tier", **PLAIN).moves() == []
    assert Asked(simulation, "migration", "n-tier", **PUBLISHED).moves() == [(0, 1, 2)]


def test_draining_instance_moves_all_and_receives_nothing():
    rows = [(0, 1, 10, 50), (0, 2, 150, 50), (0, 0, 10, 50), (1, 1, 10, 50)]
    simulation = paused(rows, until_s=0.015, instances=3, kv_blocks=100, max_num_seqs=2)
    simulation.state.instances["condition"][[0, 2]] = DRAINING
    # two run and one waits; instance 2 drains and is empty
    asked = Asked(simulation, "migration", "n-tier")
    assert asked.moves() == [(0, 1, 2), (0, 1, 0), (0, 1, 1)]
    assert asked.moves(most=2) == [(0, 1, 2), (0, 1, 0)]
    # 100 - 90 = 10 blocks free at the destination: 11 do not fit, 1 does, nor do 10 more
    rows = [(0, 1, 170, 50), (0, 2, 10, 50), (0, 2, 150, 50), (1, 1, 1430, 50)]
    simulation = paused(rows, until_s=0.015, instances=2, kv_blocks=100)
    simulation.state.instances["condition"][0] = DRAINING
    assert Asked(simulation, "migration", "n-tier").moves() == [(0, 1, 1)]


def test_ordinary_moves_go_on_while_an_instance_drains():
    # F: draining, 96 / 4 = 24, 100, 100
    rows = [(0, 1, 10, 50)] + [(1, 1, 10, 50)] * 4
    simulation = paused(rows, until_s=0.015, instances=4, kv_blocks=100)
    simulation.state.instances["condition"][0] = DRAINING
    asked = Asked(simulation, "migration", "n-tier", **PLAIN)
    assert asked.moves() == [(0, 2, 0), (1, 3, 1)]
    # F: draining with 50 blocks, 92 / 8 = 11.5, 40 / 1, which has no room for the 50
    rows = [(0, 1, 790, 50)] + [(1, 1, 10, 50)] * 8 + [(2, 1, 950, 50)]
    simulation = paused(rows, until_s=0.015, instances=3, kv_blocks=100)
    simulation.state.instances["condition"][0] = DRAINING
    asked = Asked(simulation, "migration", "n-tier", **PLAIN)
    assert asked.moves() == [(1, 2, 1)]
    # 28.5 lie between the active ones: below the threshold only what drains moves
    asked = Asked(simulation, "migration", "n-tier", threshold=29, **PLAIN)
    assert asked.moves() == []


def test_absent_instances_take_no_part():
    simulation = paused([(0, 1, 10, 50)] * 4, until_s=0.015, instances=3, kv_blocks=100)
    simulation.state.instances["condition"][1] = ABSENT
    assert Asked(simulation, "migration", "n-tier").moves() == [(0, 2, 0)]
    simulation.state.instances["condition"][2] = ABSENT
    assert Asked(simulation, "migration", "n-tier").moves() == []


@pytest.mark.parametrize("closer", [0, 1])
@pytest.mark.parametrize("name", ["n-tier", "llumnix"])
def test_equal_load_moves_nothing_whatever_the_threshold(name, closer):
    rows = [(i, 1, 150, 50) for i in (0, 0, 1, 1, 2, 2)]
    for threshold in (0, 0.1, 0.3, 40):
        assert moves(name, rows, instances=3, threshold=threshold, closer=closer) == []
    assert moves(name, [], instances=3, threshold=0, closer=closer) == []


def test_binary_reserve_is_a_headroom_of_n_tiers_too():
    # 100 blocks, spare 320 tokens: a reserve of 80. F: (100 - 1 - 80) / 1 = 19 where tier 0 is, 90 where it is not
    rows = [(0, 0, 10, 50), (1, 3, 150, 50)]
    reserve = {"headroom": 1, "form": 3, "reserve_tokens": 320, "closer": 0}
    assert moves("n-tier", rows, **reserve) == [(0, 1, 0)]
    # moved, it takes the reserve along: 100 and (100 - 11 - 80) / 2 = 4.5, further apart than 19 and 90
    assert moves("n-tier", rows, **{**reserve, "closer": 1}) == []


# Llumnix. 100 blocks: f = free / running.

SHORT = [(0, 1, 470, 50), (0, 1, 470, 50), (0, 1, 470, 50)]  # 90 blocks in 3: f = 10 / 3


def test_sources_are_short_of_steps_and_destinations_are_not():
    rows = SHORT + [(1, 1, 150, 50)]
    # 3.33 is above 3, below 4
    assert moves("llumnix", rows) == []
    assert moves("llumnix", rows, threshold=4) == [(0, 1, 2)]
    # a destination needs more than T: 90 / 1
    assert moves("llumnix", rows, threshold=90) == []
    assert moves("llumnix", rows, threshold=89, closer=0) == [(0, 1, 2)]


def test_last_normal_request_moves_or_the_shortest():
    rows = [(0, 1, 150, 50), (0, 2, 10, 50), (0, 3, 630, 50), (0, 0, 630, 50), (1, 1, 10, 50)]
    # 10 + 1 + 40 + 40 = 91 blocks in 4: 2.25
    assert moves("llumnix", rows, headroom=0) == [(0, 1, 2)]
    assert moves("llumnix", rows, headroom=0, shortest=1) == [(0, 1, 1)]


def test_reserve_makes_a_source_of_who_has_a_priority_request():
    # spare 160 tokens: a reserve of 90 of 100 blocks. f = (98 - 90) / 2 = 4 with it, 49 without
    rows = [(0, 1, 10, 50), (0, 0, 10, 50), (1, 1, 150, 50)]
    options = {"reserve_tokens": 160, "threshold": 5}
    assert moves("llumnix", rows, **options) == [(0, 1, 0)]
    assert moves("llumnix", rows, headroom=0, **options) == []
    # only a priority request there: it stays
    assert moves("llumnix", [(0, 0, 10, 50), (1, 1, 10, 50)], reserve_tokens=16, threshold=5) == []


def test_headroom_by_tier_of_llumnix():
    # 100 blocks: H = 20, 8, 3, 1. f of instance 0: (98 - 20 - 8) / 2 = 35; of instance 1: (80 - 1) / 2 = 39.5
    rows = [(0, 0, 10, 50), (0, 1, 10, 50), (1, 3, 150, 50), (1, 3, 150, 50)]
    options = {"headroom": 2, "closer": 0}
    assert moves("llumnix", rows, threshold=35, **options) == []
    assert moves("llumnix", rows, threshold=36, **options) == [(0, 1, 1)]
    assert moves("llumnix", rows, threshold=39, **options) == [(0, 1, 1)]
    assert moves("llumnix", rows, threshold=39.5, **options) == []
    # peak .6: 60 + 26 leave (98 - 86) / 2 = 6
    assert moves("llumnix", rows, threshold=7, peak=0.6, **options) == [(0, 1, 1)]
    # evened out? 4.5 apart; tier 1 takes its 8 along: (99 - 20) / 1 = 79 and (79 - 1 - 8) / 3 = 23.3
    assert moves("llumnix", rows, threshold=36, headroom=2) == []
    # three more of tier 1 stay, and their 8: (98 - 3 - 28) / 5 = 13.4 becomes 68 / 4 = 17, 39.5 again 23.3
    rows += [(0, 1, 10, 50)] * 3
    assert moves("llumnix", rows, threshold=36, headroom=2) == [(0, 1, 6)]


def test_extremes_are_zipped():
    # f: 10 / 3, 13 / 3, 90, infinite
    rows = [*SHORT, (1, 1, 470, 50), (1, 1, 470, 50), (1, 1, 420, 50), (2, 1, 150, 50)]
    assert moves("llumnix", rows, instances=4, threshold=5) == [(0, 3, 2), (1, 2, 5)]


def test_instance_with_a_preempted_request_is_a_source_and_no_destination():
    # 20 blocks. From 145 to 160 tokens both hold 10; the iteration from 170 ms on computes the 161st
    rows = [(0, 1, 144, 60), (0, 1, 144, 60)]
    simulation = paused(rows, until_s=0.175, instances=2, kv_blocks=20)
    assert simulation.state.requests["preemptions"].tolist() == [0, 1, 0]
    # f = (20 - 11 - 11) / (1 + 1) = -1 is above T, yet it is a source
    asked = Asked(simulation, "migration", "llumnix", threshold=-1000, closer=0)
    assert asked.moves() == [(0, 1, 0)]
    simulation.state.instances["n_once_preempted"][0] = 0
    assert asked.moves() == []


def test_llumnix_empties_a_draining_instance_one_request_a_tick():
    simulation = paused([(0, 1, 10, 50)] * 2, until_s=0.015, instances=2, kv_blocks=100)
    asked = Asked(simulation, "migration", "llumnix")
    assert asked.moves() == []
    simulation.state.instances["condition"][0] = DRAINING
    assert asked.moves() == [(0, 1, 1)]
    simulation.state.instances["condition"] = DRAINING, ABSENT
    assert asked.moves() == []


# Moves under way: request, source, destination.


def copying(simulation: Simulation, *under_way: tuple[int, int, int]) -> Simulation:
    """Return the simulation with live moves under way, which only what a policy reads of them tells from real ones."""
    state = simulation.state._replace(moves=records(len(under_way), layout.MOVE))
    simulation.state = state
    link_state(state)
    for move, (request, source, destination) in zip(state.moves, under_way, strict=True):
        move["request"], move["source"], move["destination"] = request, source, destination
        state.instances["n_incoming"][destination] += 1
    state.control[0]["n_moves"] = len(under_way)
    return simulation


def test_n_tier_passes_over_a_request_that_is_being_copied():
    rows = [(0, 1, 10, 50), (0, 2, 150, 50), (0, 2, 40, 50), (0, 2, 100, 50), (0, 0, 10, 50)]
    simulation = paused(rows, until_s=0.015, instances=2, kv_blocks=100)
    asked = Asked(copying(simulation, (2, 0, 1)), "migration", "n-tier", **PLAIN)
    assert asked.moves() == [(0, 1, 3)]
    copying(simulation, (2, 0, 1), (3, 0, 1), (1, 0, 1))
    asked = Asked(simulation, "migration", "n-tier", **PLAIN, slots=0)
    assert asked.moves() == [(0, 1, 0)]
    # it drains: all but these two
    simulation = paused(rows, until_s=0.015, instances=2, kv_blocks=100)
    simulation.state.instances["condition"][0] = DRAINING
    asked = Asked(copying(simulation, (2, 0, 1), (4, 0, 1)), "migration", "n-tier", slots=0)
    assert asked.moves() == [(0, 1, 0), (0, 1, 1), (0, 1, 3)]


def test_n_tier_has_two_moves_at_a_time_out_of_and_into_an_instance():
    rows = [(0, 1, 10, 50), (0, 2, 150, 50), (0, 2, 40, 50), (0, 2, 100, 50), (0, 0, 10, 50)]
    simulation = paused(rows, until_s=0.015, instances=3, kv_blocks=100)
    copying(simulation, (2, 0, 2), (3, 0, 2))  # two out of 0 and two to 2; 1 is as free as 2
    for options, written in (({}, []), ({"slots": 3}, [(0, 1, 1)]), ({"slots": 0}, [(0, 1, 1)])):
        assert Asked(simulation, "migration", "n-tier", **PLAIN, **options).moves() == written
    # of a draining one all go, to where fewer than two are on their way
    simulation.state.instances["condition"][0] = DRAINING
    asked = Asked(simulation, "migration", "n-tier", **PLAIN)
    assert asked.moves() == [(0, 1, 0), (0, 1, 1), (0, 1, 4)]
    simulation.state.instances["n_incoming"][1] = 2
    assert asked.moves() == []


def test_waiting_request_that_is_being_copied_stays():
    # one seat: request 0 runs, 1 and 2 wait; 1 would move first, but for its copy, begun before it was preempted
    rows = [(0, 2, 10, 50), (0, 2, 10, 50), (0, 2, 20, 50)]
    simulation = paused(rows, until_s=0.015, instances=2, kv_blocks=100, max_num_seqs=1)
    asked = Asked(copying(simulation, (1, 0, 1)), "migration", "n-tier", **PUBLISHED)
    assert asked.moves() == [(0, 1, 0)]
    simulation.state.instances["condition"][0] = DRAINING
    assert Asked(simulation, "migration", "n-tier").moves() == [(0, 1, 2), (0, 1, 0)]


def test_llumnix_passes_over_a_request_that_is_being_copied():
    rows = [(0, 1, 150, 50), (0, 2, 10, 50), (0, 3, 630, 50), (0, 0, 630, 50), (1, 1, 10, 50)]
    simulation = paused(rows, until_s=0.015, instances=2, kv_blocks=100)
    copying(simulation, (2, 0, 1))
    assert Asked(simulation, "migration", "llumnix", headroom=0).moves() == [(0, 1, 1)]
    copying(simulation, (1, 0, 1))
    asked = Asked(simulation, "migration", "llumnix", headroom=0, shortest=1)
    assert asked.moves() == [(0, 1, 0)]
    copying(simulation, (0, 0, 1), (1, 0, 1), (2, 0, 1))
    assert Asked(simulation, "migration", "llumnix", headroom=0).moves() == []


@pytest.mark.parametrize(
    ("under_way", "slots", "written"),
    [
        # f: 10 / 3, 13 / 3, 90, infinite, as where extremes are zipped
        ((0, 0, 2), 0, [(0, 3, 2), (1, 2, 5)]),
        ((0, 0, 2), 1, [(1, 3, 5)]),  # one out of 0, one to 2
        ((0, 0, 2), 2, [(0, 3, 2), (1, 2, 5)]),
        ((3, 1, 0), 1, [(0, 3, 2)]),  # one out of 1; what comes to 0 hinders none that goes
    ],
)
def test_instance_with_as_many_moves_as_slots_takes_no_part(under_way, slots, written):
    rows = [*SHORT, (1, 1, 470, 50), (1, 1, 470, 50), (1, 1, 420, 50), (2, 1, 150, 50)]
    simulation = copying(paused(rows, until_s=0.015, instances=4, kv_blocks=100), under_way)
    asked = Asked(simulation, "migration", "llumnix", threshold=5, slots=slots)
    assert asked.moves() == written


# Both, on states that nobody chose.

row = st.tuples(
    st.integers(0, 4), st.integers(0, 3), st.sampled_from([5, 60, 400]), st.integers(2, 60)
)


@given(
    st.lists(row, max_size=30),
    st.sampled_from(["n-tier", "llumnix"]),
    st.sampled_from([0.0, 0.1, 0.3, 30.0]),
    st.integers(0, 1),
    st.integers(0, 2),
    st.sampled_from([0.005, 0.015, 0.155]),
)
@settings(max_examples=150, deadline=None)
def test_moves_are_possible_ones(rows, name, threshold, closer, n_draining, until_s):
    options = {"instances": 5, "kv_blocks": 120, "max_num_seqs": 4, "order": "priority"}
    simulation = paused(rows, until_s=until_s, **options)
    state = simulation.state
    state.instances["condition"][:n_draining] = DRAINING
    asked = Asked(simulation, "migration", name, threshold=threshold, closer=closer)
    written = asked.moves()
    requests = [r for _, _, r in written]
    assert len(set(requests)) == len(requests)
    for source, destination, r in written:
        assert source != destination >= n_draining
        assert state.requests[r]["instance"] == source and state.requests[r]["status"] == 0
    pairs = {(source, destination) for source, destination, _ in written}
    ends = [i for pair in pairs for i in pair]
    assert len(set(ends)) == len(ends)
    busy = [source for source, _, _ in written if source >= n_draining]
    assert len(set(busy)) == len(busy)


# On the real engine.


def play(name: str, trace: Trace, instances: int = 2, **options) -> Simulation:
    """Run to the end with a migration policy, least-requests dispatch and a tick every 50 ms."""
    config = ClusterConfig(
        instances=instances, migration=name, rebalance_interval_s=0.05, **options
    )
    simulation = Simulation(trace, config, find_policy("dispatch", "least-requests"))
    simulation.run()
    assert (simulation.state.requests["status"] == FINISHED).all()
    return simulation


@pytest.mark.parametrize(("closer", "bounces"), [(1, False), (0, True)])
def test_case_19_a_request_alone_is_not_handed_to_and_fro(closer, bounces):
    """An instance with nothing is always freer than one with one request; moved, it is the other way round."""
    trace = Trace([0.0], [500], [400])
    simulation = play("n-tier", trace, migration_params={"closer": closer})
    assert bool(simulation.state.requests["migrations"][0] > 10) == bounces
    assert bool(simulation.state.requests["migrations"][0] == 0) != bounces


@pytest.mark.parametrize("name", ["n-tier", "llumnix"])
def test_case_19_no_bouncing_at_equal_load(name):
    """The same work everywhere: whatever moves has to come back, and costs a stop for nothing."""
    trace = Trace(np.zeros(12), np.full(12, 300), np.full(12, 400))
    for kv_blocks in (None, 130):
        simulation = play(name, trace, instances=4, kv_blocks=kv_blocks)
        assert simulation.state.requests["migrations"].sum() == 0


def test_migration_evens_out_what_dispatch_got_wrong():
    # round-robin puts all long requests on instance 0: KV for two of them, so the third is preempted or waits
    trace = Trace(np.zeros(8), np.full(8, 300), np.tile([900, 2], 4))
    ends = {}
    for name in (None, "n-tier", "llumnix"):
        config = ClusterConfig(
            instances=2, kv_blocks=160, migration=name, rebalance_interval_s=0.05
        )
        simulation = Simulation(trace, config, find_policy("dispatch", "round-robin"))
        simulation.run()
        ends[name] = int(simulation.state.requests["finish_ps"].max())
        assert bool(simulation.state.requests["migrations"].sum()) == (name is not None)
    assert ends["n-tier"] < 0.8 * ends[None] > ends["llumnix"]
