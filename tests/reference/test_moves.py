"""Moves by hand: cold, live in two and three stages, refused and aborted for every reason.

An iteration takes 10 ms, a block is 16 tokens and is copied in 10 ms. Times are in ms. Request 0 (A)
has 40 prompt and 20 output tokens: without a move it holds 3 blocks from 0 to 90 and ends at 200.
"""

from typing import Any

import pytest

from reference.cluster import ReferenceCluster
from reference.hand_worked import finishes, go_on, load, ms, play, requests, spec, to
from reference.model import InstanceSpec, Request

A = (0, 40, 20)


def script(*moves: tuple[int, int, int, int]) -> dict[str, Any]:
    """Return a migration policy: (at_ms, source, destination, request)."""

    def migration(cluster: ReferenceCluster) -> list[tuple[int, int, Request]]:
        now = ms(cluster.now)
        return [(s, d, cluster.requests[r]) for at, s, d, r in moves if at == now]

    return {"migration": migration}


def move(
    trace: list[Request],
    *moves: tuple[int, int, int, int],
    fleet: list[InstanceSpec] | None = None,
    dispatch: Any = None,
    **options: Any,
) -> ReferenceCluster:
    """Load two instances; everything goes to 0 by default. A block takes 10 ms."""
    defaults = {"rebalance_interval_ms": 10, "migration_stages": 2, "link_bytes_per_s": 1.6e6}
    return load(
        [spec(), spec()] if fleet is None else fleet,
        trace,
        to(*[0] * len(trace)) if dispatch is None else dispatch,
        policies=script(*moves),
        **{**defaults, **options},
    )


def outcomes(cluster: ReferenceCluster) -> list[tuple[str, str]]:
    """Return what the ledger says of each move."""
    return [(line.outcome, line.reason) for line in cluster.moves.ledger]


def test_two_stages():
    # At 20 A has 2 tokens and 3 blocks: 2 are copied in 20-40. At 40 it has 4 tokens and stops; the
    # third block is copied in 40-50. Instance 1 is idle: commit at 50, 16 tokens more: 210.
    trace = requests(A)
    cluster = move(trace, (20, 0, 1, 0))
    go_on(cluster, until=39)
    assert [e.free_blocks for e in cluster.engines] == [97, 98]
    assert cluster.engines[0].observe().n_running == 1
    go_on(cluster, until=45)
    assert trace[0].status == "parked" and trace[0].generated == 4
    assert [e.free_blocks for e in cluster.engines] == [97, 97]
    # in neither n_waiting nor n_running, but in held_tokens and tier_count of instance 0
    assert cluster.engines[0].observe() == (0, 0, 3, 0, 47)
    assert cluster.engines[0].details().tier_counts == {0: 1}
    assert cluster.engines[1].observe() == (0, 0, 3, 0, 0)
    go_on(cluster, until=50)
    assert [e.free_blocks for e in cluster.engines] == [100, 97] and trace[0].instance == 1
    go_on(cluster)
    assert finishes(trace) == [210] and trace[0].migrations == 1
    assert cluster.moves.ledger == [(20 * 10**9, 50 * 10**9, 0, 1, 0, "committed", "", 10 * 10**9)]


def test_three_stages():
    # A block takes 50 ms, at most 1 may be left. At 20 A has 47 + 2 tokens, 48 computed, 3 blocks:
    # 2 in 20-120. At 120: 12 tokens, 58 computed, 4 blocks, 2 left: one more in 120-170. At 170: 17
    # tokens, 63 computed, 4 blocks: the last in 170-220. 13 tokens more: 350.
    trace = requests((0, 47, 30))
    options: Any = {"migration_stages": 3, "last_stage_blocks": 1, "link_bytes_per_s": 3.2e5}
    cluster = move(trace, (20, 0, 1, 0), **options)
    go_on(cluster, until=121)
    assert [e.free_blocks for e in cluster.engines] == [96, 97]
    go_on(cluster)
    assert finishes(trace) == [350] and outcomes(cluster) == [("committed", "")]
    # with two stages, two blocks are too many for the last
    trace = requests((0, 47, 30))
    cluster = move(trace, (20, 0, 1, 0), **{**options, "migration_stages": 2})
    go_on(cluster)
    assert finishes(trace) == [300] and outcomes(cluster) == [("aborted", "stages exceeded")]
    assert ms(cluster.moves.ledger[0].ended_ps) == 120


def test_request_stops_at_the_end_of_its_iteration_and_joins_between_iterations():
    # A block takes 7.5 ms. The first stage ends at 35, A stops at 40, copied at 47.5. On instance 1
    # B's iterations end at 5, 15, 25, ...: commit at 55; 16 tokens more: 215.
    trace = requests(A, (5, 8, 20))
    cluster = move(trace, (20, 0, 1, 0), dispatch=to(0, 1), link_bytes_per_s=16e6 / 7.5)
    go_on(cluster, until=36)
    assert trace[0].status == "running" and cluster.engines[1].reserved_seats == 1
    go_on(cluster)
    assert finishes(trace) == [215, 205]
    assert ms(cluster.moves.ledger[0].downtime_ps) == 15


def test_request_of_one_block_stops_at_once():
    # 8 + 1 tokens at 20, one block: at the tick no iteration is in flight, so it stops at 20; 20-30.
    # The second one, 20 tokens, lasts: it would have ended at 200.
    trace = requests((0, 8, 20))
    cluster = move(trace, (20, 0, 1, 0))
    go_on(cluster, until=25)
    assert trace[0].status == "parked"
    go_on(cluster)
    assert finishes(trace) == [210]


def test_it_joins_behind_the_last_that_decodes():
    # Commit at 50 on instance 1, whose iterations end at 50, too: B decodes, C's prompt of 64 tokens
    # in chunks of 15 (with B) is not complete.
    trace = requests(A, (0, 8, 20), (29, 64, 1))
    cluster = move(
        trace,
        (20, 0, 1, 0),
        fleet=[spec(), spec(max_num_batched_tokens=16, max_num_seqs=8)],
        dispatch=to(0, 1, 1),
    )
    go_on(cluster, until=50)
    assert [r.index for r in cluster.engines[1].running] == [1, 0, 2]
    go_on(cluster)
    # C: 15 tokens each in 30-40, 40-50, then 14: 45 ... 44, 58, 64 at 80
    assert finishes(trace) == [210, 200, 80]


def test_aborted_since_it_finished():
    # it ends at 30; its two blocks stay reserved until the stage ends at 40
    trace = requests((0, 40, 3))
    cluster = move(trace, (20, 0, 1, 0))
    go_on(cluster, until=39)
    assert cluster.engines[1].free_blocks == 98
    go_on(cluster)
    assert finishes(trace) == [30] and outcomes(cluster) == [("aborted", "ended first")]
    assert cluster.engines[1].free_blocks == 100


def test_aborted_since_it_finished_in_the_iteration_after_which_it_was_to_stop():
    # a block in 7.5 ms: the stage ends at 35, the request at 40
    trace = requests((0, 40, 4))
    cluster = move(trace, (20, 0, 1, 0), link_bytes_per_s=16e6 / 7.5)
    go_on(cluster)
    assert finishes(trace) == [40] and outcomes(cluster) == [("aborted", "ended first")]
    assert ms(cluster.moves.ledger[0].ended_ps) == 40


def test_aborted_since_it_was_preempted():
    # 6 blocks; A and B hold 3 each from 10 on, for 48 tokens. At 170 A wants its fourth: B goes. B's
    # move, 160-180, is void. A ends at 180; B, 49 tokens, is admitted: 18th token at 190, end at 210.
    trace = requests((0, 32, 18), (0, 32, 20))
    cluster = move(trace, (160, 0, 1, 1), fleet=[spec(kv_blocks=6), spec()])
    go_on(cluster)
    assert outcomes(cluster) == [("aborted", "preempted first")]
    assert finishes(trace) == [180, 210] and trace[1].preemptions == 1


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"kv_blocks": 3}, ("refused", "no blocks")),  # C holds 2 of 3, 2 are asked for
        ({"kv_blocks": 4}, ("aborted", "no room")),  # the third cannot be had
        ({"kv_blocks": 5}, ("committed", "")),
        ({"kv_blocks": 5, "max_num_seqs": 1}, ("aborted", "no room")),  # no seat
        ({"kv_blocks": 5, "watermark": 0.2}, ("aborted", "no room")),  # one block is kept
    ],
)
def test_reservations(changes, outcome):
    # C has 20 + 9 tokens, 2 blocks, and lasts until 90
    trace = requests(A, (0, 20, 9))
    cluster = move(trace, (20, 0, 1, 0), fleet=[spec(), spec(**changes)], dispatch=to(0, 1))
    if changes == {"kv_blocks": 3}:
        assert not cluster.fits(trace[0], 1)  # 59 tokens need 4 blocks
        trace[0].output_tokens = 8  # 47 tokens need 3
    go_on(cluster)
    assert outcomes(cluster) == [outcome]
    lasts = trace[0].output_tokens * 10
    assert finishes(trace) == [lasts + 10 if outcome[0] == "committed" else lasts, 90]


def test_refused():
    # B waits for the seat; C, of 100 tokens, does not fit instance 1; A prefills until 30
    trace = requests((0, 40, 20), (0, 8, 1), (0, 100, 1))
    fleet = [spec(max_num_seqs=16, max_num_batched_tokens=16), spec(kv_blocks=6)]
    moves = [
        (20, 0, 0, 0),
        (20, 0, 1, 0),
        (20, 1, 0, 1),
        (20, 0, 1, 2),
        (30, 0, 1, 0),
        (40, 0, 1, 0),
    ]
    cluster = move(trace, *moves, fleet=fleet)
    go_on(cluster, until=45)
    assert outcomes(cluster) == [
        ("refused", "same instance"),
        ("refused", "prefilling"),
        ("refused", "not at the source"),
        ("refused", "destination"),
        ("refused", "in a move"),
    ]


def test_links_copy_one_thing_after_the_other():
    # A 20-40, B 40-60. At 40 A asks for its last block: 60-70. B stops at 60: 70-80.
    trace = requests(A, A)
    cluster = move(trace, (20, 0, 1, 0), (20, 0, 1, 1))
    go_on(cluster)
    assert [ms(line.ended_ps) for line in cluster.moves.ledger] == [70, 80]
    assert [ms(line.downtime_ps) for line in cluster.moves.ledger] == [30, 20]
    # A has 4 tokens at 40, joins at 70. Instance 1 is in flight until 80: B joins with 6 tokens.
    assert finishes(trace) == [230, 220]


def test_parked_request_keeps_its_seat_and_its_blocks():
    # one seat: B, there since 41, starts when A's move commits at 50
    trace = requests(A, (41, 8, 1))
    cluster = move(trace, (20, 0, 1, 0), fleet=[spec(max_num_seqs=1), spec()])
    go_on(cluster)
    assert ms(trace[1].admitted_ps) == 50
    # 4 blocks: B, of 2 blocks, waits on an instance where nobody runs: no error
    trace = requests((0, 40, 20), (41, 20, 1))
    cluster = move(trace, (20, 0, 1, 0), fleet=[spec(kv_blocks=4), spec()])
    go_on(cluster)
    assert ms(trace[1].admitted_ps) == 50


def test_commit_calls_for_a_round():
    # pull, one seat: B leaves the gateway when A has left instance 0, though instance 1 is taken
    trace = requests(A, (0, 8, 20), (41, 8, 1))
    cluster = move(
        trace,
        (20, 0, 1, 0),
        fleet=[spec(max_num_seqs=1), spec(max_num_seqs=2)],
        dispatch=to(0, 1, 0),
        max_local_waiting=0,
    )
    cluster.dispatch = lambda cluster, request: (
        request.index if request.index < 2 else (0 if cluster.is_accepting(request, 0) else None)
    )
    go_on(cluster)
    assert outcomes(cluster) == [("committed", "")]
    assert ms(trace[2].admitted_ps) == 50


def test_cold_move_of_a_waiting_request():
    # one seat each: B waits behind A until it is moved at 20
    trace = requests(A, (5, 8, 2))
    fleet = [spec(max_num_seqs=1)] * 2
    cluster = move(trace, (20, 0, 1, 1), fleet=fleet)
    go_on(cluster)
    assert outcomes(cluster) == [("cold", "")] and finishes(trace) == [200, 40]
    assert (trace[1].instance, trace[1].migrations, ms(trace[1].admitted_ps)) == (1, 1, 20)


def test_cold_move_is_no_placement_of_a_router():
    trace = requests(A, (5, 8, 2))
    cluster = move(trace, (20, 0, 1, 1), fleet=[spec(max_num_seqs=1)] * 2)
    cluster.metrics_interval_ps = 15 * 10**9
    go_on(cluster, until=29)
    # at 15 B waited; it has left since, but nobody is told
    assert cluster.observe(None, 0).n_waiting == 1
    assert cluster.observe(None, 1).n_waiting == cluster.observe(None, 1).n_running == 0


def test_static_moves_only_those_who_wait():
    trace = requests((0, 8, 2), (0, 8, 1))
    fleet = [spec(engine="static", batch_size=1, batch_wait_ps=0)] * 2
    cluster = move(trace, (10, 0, 1, 0), (10, 0, 1, 1), fleet=fleet)
    go_on(cluster)
    assert outcomes(cluster) == [("refused", "prefilling"), ("cold", "")]
    assert finishes(trace) == [20, 20]


def test_policy_is_asked_only_while_somebody_is_in_the_system():
    asked = []
    trace = requests((15, 8, 1), (35, 8, 2))
    policies = {"migration": lambda cluster: asked.append(ms(cluster.now)) or []}
    play([spec()], trace, policies=policies, rebalance_interval_ms=5)
    # the first is there in [15, 25), the second in [35, 55)
    assert asked == [15, 20, 35, 40, 45, 50]
