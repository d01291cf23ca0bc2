"""The gateway by hand: push, pull, holds, queues, admission, releases, and when nothing moves on.

An iteration takes 10 ms, a block is 16 tokens. Times are in ms.
"""

import pytest

from reference.cluster import ReferenceCluster
from reference.engine import NoProgressError
from reference.gateway import NotAcceptedError
from reference.hand_worked import finishes, go_on, load, ms, play, requests, spec, to
from reference.model import Request
from reference.options import ACCEPT, HOLD, REJECT


def test_push_with_a_limit_keeps_the_rest_at_the_gateway():
    # One seat, one may wait. At 0 A is placed and B is not. A's first iteration, which admitted it,
    # ends at 10: B is placed. At 20 A ends, but B still waits: C stays. B runs in 20-30, then C.
    trace = requests((0, 8, 2), (0, 8, 1), (0, 8, 1))
    cluster = load([spec(max_num_seqs=1)], trace, max_local_waiting=1)
    go_on(cluster, until=9)
    assert [r.status for r in trace] == ["running", "queued", "queued"]
    go_on(cluster, until=20)
    assert [r.status for r in trace] == ["finished", "waiting", "queued"]
    go_on(cluster)
    assert finishes(trace) == [20, 30, 40]


def test_iteration_that_admits_nobody_calls_for_no_round():
    # A decodes in 10-20 and 20-30. B waits from 5 on, since its dispatch says HOLD before 15: asked
    # at 5 and, as A's first iteration had admitted it, at 10; then not before A ends at 30.
    asked = []

    def dispatch(cluster: ReferenceCluster, request: Request) -> int | None:
        asked.append((ms(cluster.now), request.index))
        return 0 if request.index == 0 or cluster.now >= 15e9 else None

    trace = requests((0, 8, 3), (5, 8, 1))
    cluster = play([spec()], trace, dispatch)
    assert asked == [(0, 0), (5, 1), (10, 1), (30, 1)]
    assert finishes(trace) == [30, 40] and cluster.gateway.n_holds == 2


def test_timer_counts_from_the_last_round():
    # rounds at 0, 10, 20 hold; at 23 another arrival brings one; then 33
    trace = requests((0, 8, 1), (23, 8, 1))
    cluster = play(
        [spec()],
        trace,
        lambda cluster, request: 0 if cluster.now >= 25e9 else None,
        hold_timer_ms=10,
    )
    assert finishes(trace) == [43, 43] and cluster.gateway.n_holds == 4


def test_pull_places_who_would_be_admitted():
    # two seats: C is placed when B ends at 10
    trace = requests((0, 8, 2), (0, 8, 1), (0, 8, 1))
    cluster = load([spec(max_num_seqs=2)], trace, max_local_waiting=0)
    go_on(cluster, until=5)
    assert [r.status for r in trace] == ["running", "running", "queued"]
    go_on(cluster)
    assert finishes(trace) == [20, 10, 20]
    # 4 blocks: A takes 2, B needs 3 and does not wait at the instance
    trace = requests((0, 20, 2), (0, 33, 1))
    cluster = play([spec(kv_blocks=4)], trace, max_local_waiting=0, until=5)
    assert [r.status for r in trace] == ["running", "queued"]
    go_on(cluster)
    assert finishes(trace) == [20, 30]


def test_pull_brings_nobody_to_an_instance_where_a_preempted_request_waits():
    # 4 blocks; A and B hold 2 each. At 10 A wants a third: B goes, 1 block is free. C, of one block,
    # stays at the gateway, at 15 and, B still waiting, at 30 when A ends. B ends at 40.
    trace = requests((0, 32, 3), (0, 32, 2), (15, 8, 1))
    play([spec(kv_blocks=4)], trace, max_local_waiting=0)
    assert finishes(trace) == [30, 40, 50]


def test_pull_asks_v1_without_reservation_for_the_first_chunk_only():
    # 4 blocks, 2 held: B's 40 tokens need 3, its first chunk of 16 needs 1
    trace = requests((0, 32, 2), (0, 40, 1))
    chunked = {"max_num_batched_tokens": 16, "max_num_seqs": 8, "kv_blocks": 4}
    play([spec(**chunked)], trace, max_local_waiting=0, until=0)
    assert trace[1].status == "queued"
    trace = requests((0, 32, 2), (0, 40, 1))
    play([spec(**chunked, reserve_full_prompt=False)], trace, max_local_waiting=0, until=0)
    assert trace[1].status == "waiting"


def test_pull_fills_a_static_batch_and_waits_for_its_end():
    # {A, B} until 20; C, too, has its place in a batch only from 20 on
    trace = requests((0, 8, 2), (0, 8, 1), (0, 8, 1))
    fleet = [spec(engine="static", batch_size=2, batch_wait_ps=0)]
    cluster = play(fleet, trace, max_local_waiting=0, until=19)
    assert trace[2].status == "queued"
    go_on(cluster)
    assert finishes(trace) == [20, 20, 30]


def test_queue_is_kept_by_the_order_of_the_cluster():
    # A runs; at 10 the head is C, more urgent than B
    trace = requests((0, 8, 1), (1, 8, 1, 1), (2, 8, 1, 0))
    play([spec(max_num_seqs=1, order="priority")], trace, max_local_waiting=0)
    assert finishes(trace) == [10, 30, 20]


def test_queue_policy_chooses_among_the_heads():
    # the largest tier first; by default the head that arrived first
    rows = (0, 8, 1), (1, 8, 1, 0), (2, 8, 1, 1)

    def largest(cluster: ReferenceCluster) -> int:
        return max(q for q, queue in enumerate(cluster.gateway.queues) if queue)

    expected = [(None, [10, 20, 30]), (largest, [10, 30, 20])]
    for policy, finish in expected:
        trace = requests(*rows)
        play(
            [spec(max_num_seqs=1)],
            trace,
            policies={"queue_policy": policy},
            max_local_waiting=0,
            queue_by="tier",
        )
        assert finishes(trace) == finish


def test_choice_of_a_queue_that_is_not_ready_ends_the_round():
    # 4 blocks, A holds 2: queue 0's head needs 3, queue 1's would fit. A policy that insists on
    # queue 0 holds both until A ends at 20 (rounds at 1, 2 and 10 hold).
    trace = requests((0, 20, 2, 0), (1, 33, 1, 0), (2, 8, 1, 1))
    policies = {"queue_policy": lambda cluster: 0 if cluster.gateway.queues[0] else 1}
    cluster = play(
        [spec(kv_blocks=4)], trace, policies=policies, max_local_waiting=0, queue_by="tier"
    )
    assert finishes(trace) == [20, 30, 30]
    # at 1 no queue is ready and nobody is asked; at 2 and 10 queue 1 is
    assert cluster.gateway.n_holds == 2


@pytest.mark.parametrize("choice", [0, 2])
def test_choice_of_an_empty_or_unknown_queue_is_an_error(choice):
    with pytest.raises(NotAcceptedError, match=f"queue {choice}"):
        policies = {"queue_policy": lambda cluster: choice}
        play([spec()], requests((0, 8, 1, 1)), policies=policies, queue_by="tier")


def test_choice_of_an_instance_that_does_not_accept_is_an_error():
    with pytest.raises(NotAcceptedError, match="instance 0 does not accept request 1"):
        play(
            [spec(max_num_seqs=1)] * 2,
            requests((0, 8, 1), (0, 8, 1)),
            to(0, 0),
            max_local_waiting=1,
        )


def test_admission_policy_is_asked_again_in_every_round():
    # asked at the arrival and in the round that follows it at once; the timer's round is at 13
    asked = []

    def admission(cluster: ReferenceCluster, request: Request) -> str | None:
        asked.append((ms(cluster.now), request.index))
        return ACCEPT if cluster.now >= 10e9 else HOLD

    trace = requests((0, 8, 1), (3, 8, 1))
    cluster = play([spec()], trace, policies={"admission": admission}, hold_timer_ms=10)
    assert asked == [(0, 0), (0, 0), (3, 1), (3, 0), (3, 1), (13, 0), (13, 1)]
    assert finishes(trace) == [23, 23]
    assert cluster.gateway.n_holds == 0  # it ends no round


def test_admission_policy_rejects_now_or_later():
    def admission(cluster: ReferenceCluster, request: Request) -> str | None:
        if request.index == 2:
            return ACCEPT
        return REJECT if request.index == 0 or cluster.now >= 5e9 else HOLD

    trace = requests((0, 8, 1), (1, 8, 1), (7, 8, 1))
    play([spec()], trace, policies={"admission": admission})
    assert [r.status for r in trace] == ["rejected", "rejected", "finished"]
    assert [ms(r.ended_ps) for r in trace] == [0, 7, 17]


def test_policy_that_holds_for_ever_is_named():
    trace = requests((0, 8, 1))
    always = {"admission": lambda cluster, request: HOLD}
    with pytest.raises(NoProgressError, match="holds 1 requests"):
        play([spec()], trace, policies=always, hold_timer_ms=10, max_hold_ms=25)
    cluster = load([spec()], trace, lambda cluster, request: None, hold_timer_ms=10, max_hold_ms=25)
    go_on(cluster, until=29)
    with pytest.raises(NoProgressError, match="holds 1 requests"):
        go_on(cluster)
    # rounds at 0, 10 and 20; the one at 30 would come too late
    assert ms(cluster.now) == 29 and cluster.gateway.n_holds == 3


def test_requests_that_nobody_ever_accepts_are_unfinished():
    # 81 tokens fit only the second instance, which is absent; the other waits in a queue of its own
    trace = requests((0, 81, 1, 0), (0, 80, 1, 1))
    fleet = [spec(kv_blocks=5), spec(kv_blocks=6)]
    cluster = play(fleet, trace, instances=1, queue_by="tier", hold_timer_ms=10, max_hold_ms=25)
    assert [r.status for r in trace] == ["unfinished", "finished"]
    # the last event is the end of an iteration at 10; rounds at 20 and 30
    assert ms(cluster.now) == 30 and cluster.gateway.n_holds == 0
