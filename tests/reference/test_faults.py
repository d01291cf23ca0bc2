"""Faults, clients and scaling by hand.

An iteration takes 10 ms, a block is 16 tokens and is copied in 10 ms. Times are in ms.
"""

from typing import Any

import pytest

from reference.cluster import ReferenceCluster
from reference.hand_worked import (
    finishes,
    first_accepting,
    go_on,
    load,
    ms,
    play,
    requests,
    spec,
    to,
)
from reference.model import PS_PER_MS, InstanceSpec, Request
from reference.options import Fault

A = (0, 40, 20)


def fault(kind: Any, instance: int, at: int, duration: int, factor: float = 1.0) -> Fault:
    return Fault(
        kind=kind,
        instance=instance,
        at_ps=at * PS_PER_MS,
        duration_ps=duration * PS_PER_MS,
        factor=factor,
    )


def move_first_at_20(cluster: ReferenceCluster) -> list[tuple[int, int, Request]]:
    return [(0, 1, cluster.requests[0])] if ms(cluster.now) == 20 else []


def move_with(fleet: list[InstanceSpec], trace: list[Request], **options: Any) -> ReferenceCluster:
    """Move request 0 from 0 to 1 at 20, in two stages: 2 blocks until 40, the third until 50."""
    defaults = {"rebalance_interval_ms": 10, "migration_stages": 2, "link_bytes_per_s": 1.6e6}
    policies = {"migration": move_first_at_20}
    return load(fleet, trace, policies=policies, **{**defaults, **options})


def reasons(cluster: ReferenceCluster) -> list[tuple[str, str]]:
    return [(line.outcome, line.reason) for line in cluster.moves.ledger]


# Crashes.


def test_crash_sends_its_requests_back_to_the_gateway():
    # The iteration of 10-20 is lost at 15 with 20 computed tokens; at 35 the 21 known are computed:
    # second token at 45, third at 55. B, in its first iteration, has nothing computed.
    trace = requests((0, 20, 3), (12, 8, 1))
    faults = (fault("crash", 0, 15, 20),)
    cluster = play([spec()], trace, faults=faults)
    assert finishes(trace) == [55, 45]
    assert [r.recomputed_tokens for r in trace] == [20, 0]
    assert [ms(r.admitted_ps) for r in trace] == [0, 35]
    assert ms(trace[0].first_token_ps) == 10 and cluster.faults.n_lost == 2


def test_crash_may_fail_its_requests():
    trace = requests((0, 20, 3), (12, 8, 1), (20, 8, 1))
    play([spec()], trace, faults=(fault("crash", 0, 15, 20),), on_failure="fail")
    assert [r.status for r in trace] == ["failed", "failed", "finished"]
    assert [ms(r.ended_ps) for r in trace] == [15, 15, 45]
    assert trace[0].generated == 1 and trace[0].recomputed_tokens == 0


def test_crash_at_the_end_of_an_iteration_comes_after_it():
    trace = requests((0, 20, 1), (0, 20, 2))
    play([spec()], trace, faults=(fault("crash", 0, 10, 5),))
    assert finishes(trace) == [10, 25] and trace[1].recomputed_tokens == 20


def test_requests_of_a_crash_go_elsewhere_at_once():
    # ahead of C, which arrived later and waits at the gateway for the seat of instance 1
    trace = requests((0, 8, 4), (0, 8, 2), (1, 8, 1))
    fleet = [spec(max_num_seqs=1)] * 2
    play(fleet, trace, faults=(fault("crash", 0, 15, 100),), max_local_waiting=0)
    assert finishes(trace) == [50, 20, 60] and [r.instance for r in trace] == [1, 1, 1]


def test_overlapping_crashes_end_with_the_last():
    trace = requests((12, 8, 1))
    play([spec()], trace, faults=(fault("crash", 0, 10, 10), fault("crash", 0, 15, 15)))
    assert finishes(trace) == [40]


def test_fault_that_ends_when_another_begins_ends_first():
    trace = requests((12, 8, 1))
    play([spec()], trace, faults=(fault("crash", 0, 20, 10), fault("crash", 0, 10, 10)))
    assert finishes(trace) == [40]


def test_crash_of_a_static_instance_loses_the_batch():
    # {A} forms until 10; at 5 it is lost; at 15 it forms again until 25
    trace = requests((0, 8, 1))
    fleet = [spec(engine="static", batch_size=2, batch_wait_ps=10 * PS_PER_MS)]
    play(fleet, trace, faults=(fault("crash", 0, 5, 10),))
    assert finishes(trace) == [35] and ms(trace[0].admitted_ps) == 25


@pytest.mark.parametrize("crashed", [0, 1])
@pytest.mark.parametrize("at", [35, 45])
def test_crash_at_either_end_aborts_a_move(crashed, at):
    # of the source: A comes again at once, on instance 1; of the destination: it goes on where it is,
    # from 45 if it was parked since 40 (nothing is in flight there). At 35 it has 3 tokens, at 45 4.
    trace = requests(A)
    faults = (fault("crash", crashed, at, 1000),)
    cluster = move_with([spec(), spec()], trace, faults=faults)
    go_on(cluster, until=at)
    assert reasons(cluster) == [("aborted", "source lost" if crashed == 0 else "destination lost")]
    assert [e.reserved_blocks for e in cluster.engines] == [0, 0]
    go_on(cluster)
    left = 17 if at == 35 else 16
    expected = at + 10 * left if crashed == 0 else (200 if at == 35 else 45 + 160)
    assert finishes(trace) == [expected]
    assert trace[0].recomputed_tokens == (40 + (2 if at == 35 else 3) if crashed == 0 else 0)


def test_parked_request_returns_behind_the_last_that_decodes():
    # C's prompt, since 41, is computed in chunks of 16; B decodes
    trace = requests(A, (0, 8, 20), (39, 64, 1))
    fleet = [spec(max_num_batched_tokens=48, max_num_seqs=8), spec()]
    cluster = move_with(fleet, trace, faults=(fault("link", 1, 45, 1),))
    go_on(cluster, until=49)
    assert reasons(cluster) == [] and trace[0].status == "parked"
    assert cluster.engines[1].free_blocks == 100
    # the iteration of 40-50 is in flight: it returns when that has ended
    go_on(cluster, until=50)
    assert [r.index for r in cluster.engines[0].running] == [1, 0, 2]
    assert reasons(cluster) == [("aborted", "link lost")]
    go_on(cluster)
    assert finishes(trace)[:2] == [210, 200]


# The other kinds.


def test_slow_instance_takes_longer_for_iterations_that_start_meanwhile():
    # 0-10; 10-30; 30-40 although the fault lasted until 25
    trace = requests((0, 20, 3))
    play([spec()], trace, faults=(fault("slow", 0, 5, 20, 2.0),))
    assert finishes(trace) == [40]
    trace = requests((0, 20, 3))
    play([spec()], trace, faults=(fault("slow", 0, 10, 10, 2.0), fault("slow", 0, 5, 20, 1.5)))
    assert finishes(trace) == [50]  # 0-10, 10-40


def test_refreshes_that_do_not_happen():
    # refreshes at 0, (20,) 40; A and C are placed at 1 and 25, both running soon after
    trace = requests((1, 20, 9), (25, 40, 9), (60, 8, 1))
    cluster = load([spec()], trace, faults=(fault("metrics", 0, 20, 20),))
    cluster.metrics_interval_ps = 20 * PS_PER_MS
    go_on(cluster, until=39)
    assert cluster.observe(None, 0) == (2, 0, 0, 5, 20 + 40 + 14)
    go_on(cluster, until=41)
    # at 40, the iteration of 31-41 in flight
    assert cluster.observe(None, 0) == (0, 2, 5, 0, 74)


def test_link_is_down_until_the_end_of_the_fault():
    trace = requests(A)
    cluster = move_with([spec(), spec()], trace, faults=(fault("link", 1, 10, 11),))
    go_on(cluster)
    assert reasons(cluster) == [("refused", "link down")] and finishes(trace) == [200]
    trace = requests(A)
    cluster = move_with([spec(), spec()], trace, faults=(fault("link", 0, 10, 10),))
    go_on(cluster)
    assert reasons(cluster) == [("committed", "")]


# Clients.


def test_waiting_request_is_cancelled_at_its_limit_and_a_running_one_when_the_iteration_ends():
    # A runs, its limit is 25: cancelled at 30 with 3 tokens. B waits: cancelled at 26.
    trace = requests((0, 20, 9), (1, 20, 1), (2, 20, 1, 1))
    cluster = play([spec(max_num_seqs=1)], trace, timeout_ps=(25 * PS_PER_MS, None))
    assert [r.status for r in trace] == ["cancelled", "cancelled", "finished"]
    assert [ms(r.ended_ps) for r in trace] == [30, 26, 40]
    assert [r.generated for r in trace] == [3, 0, 1]
    assert cluster.clients.cancelled_while == ["waiting", "running"]


def test_limit_at_the_end_of_an_iteration():
    # A ends at 20 and was not late; B is cancelled at 20
    trace = requests((0, 20, 2), (0, 20, 3))
    play([spec()], trace, timeout_ms=20)
    assert [r.status for r in trace] == ["finished", "cancelled"]
    assert ms(trace[1].ended_ps) == 20 and trace[1].generated == 2


def test_cancellation_at_the_gateway_and_its_round():
    # pull, one seat: B is cancelled at 15 at the gateway, A at 20; C has the seat from 20 on
    trace = requests((0, 8, 9), (1, 8, 1), (16, 8, 1))
    cluster = play([spec(max_num_seqs=1)], trace, timeout_ms=14, max_local_waiting=0)
    assert [ms(r.ended_ps) for r in trace] == [20, 15, 30]
    assert cluster.clients.cancelled_while == ["queued", "running"]


def test_cancellation_in_a_static_batch_does_not_happen():
    trace = requests((0, 8, 3), (0, 8, 1))
    fleet = [spec(engine="static", batch_size=1)]
    cluster = play(fleet, trace, timeout_ms=5)
    assert [r.status for r in trace] == ["finished", "cancelled"]
    assert cluster.clients.cancelled_while == ["waiting"]


def test_cancellation_of_a_parked_request():
    # parked in 40-50: cancelled at 45, and its move, too
    trace = requests(A)
    cluster = move_with([spec(), spec()], trace, timeout_ms=45)
    go_on(cluster)
    assert ms(trace[0].ended_ps) == 45 and reasons(cluster) == [("aborted", "ended first")]
    assert [e.free_blocks for e in cluster.engines] == [100, 100]


def test_client_asks_again_from_nothing_with_growing_patience():
    # limit 15: cancelled at 20 (2 tokens), again at 25; cancelled at 40 + 5 = 45 (25, 35, 45), again
    # 10 later, at 55: cancelled at 75, for good
    trace = requests((0, 20, 9))
    cluster = load([spec()], trace, timeout_ms=15, client_retries=2, retry_backoff_ms=5)
    go_on(cluster, until=22)
    assert (trace[0].status, trace[0].generated) == ("cancelled", 2)
    go_on(cluster, until=26)
    assert (trace[0].status, trace[0].generated, trace[0].first_token_ps) == ("running", 0, None)
    go_on(cluster)
    assert (trace[0].status, trace[0].attempt, ms(trace[0].ended_ps)) == ("cancelled", 3, 75)
    assert (ms(trace[0].first_token_ps), ms(trace[0].admitted_ps)) == (65, 0)


def test_client_that_asks_again_may_succeed():
    # behind A, which has no limit, B waits until 25; asks again at 45 and runs at once
    trace = requests((0, 20, 4, 1), (5, 20, 2, 0))
    play(
        [spec(max_num_seqs=1)],
        trace,
        timeout_ps=(20 * PS_PER_MS, None),
        client_retries=1,
        retry_backoff_ms=20,
    )
    assert finishes(trace) == [40, 65] and trace[1].arrival_ps == 5 * PS_PER_MS


# Scaling.


def scripted(**orders: int) -> dict[str, Any]:
    """Return a scaling policy: at_<ms>=change."""
    return {"scaling": lambda cluster: orders.get(f"at_{round(ms(cluster.now) or 0)}", 0)}


def test_instance_starts_after_its_delay():
    # ordered at 10, ready at 25: B, at the gateway since 12, is placed then
    trace = requests((0, 8, 9), (12, 8, 1))
    cluster = play(
        [spec(max_num_seqs=1)] * 2,
        trace,
        policies=scripted(at_10=1),
        max_local_waiting=0,
        instances=1,
        scaling_interval_ms=10,
        startup_delay_ms=15,
    )
    assert finishes(trace) == [90, 35] and trace[1].instance == 1
    assert ms(cluster.fleet.instance_ps(cluster.now)) == 90 + 80


def test_instance_that_starts_at_once_is_used_at_once():
    trace = requests((0, 8, 9), (12, 8, 1))
    play(
        [spec(max_num_seqs=1)] * 2,
        trace,
        policies=scripted(at_20=1),
        max_local_waiting=0,
        instances=1,
        scaling_interval_ms=10,
    )
    assert finishes(trace) == [90, 30]


def test_instance_drains_and_is_absent_when_empty():
    # at 10 instance 1 drains (as few run as on 0, larger index): B ends on it at 30; C goes to 0
    trace = requests((0, 8, 9), (0, 8, 3), (12, 8, 1))
    cluster = load(
        [spec(), spec()],
        trace,
        lambda cluster, request: (
            (1 if request.index else 0) if request.index < 2 else first_accepting(cluster, request)
        ),
        policies=scripted(at_10=-1, at_20=-1),
        scaling_interval_ms=10,
    )
    go_on(cluster, until=29)
    assert cluster.fleet.states == ["active", "draining"] and trace[2].instance == 0
    go_on(cluster)
    assert cluster.fleet.states == ["active", "absent"]  # 0 is the last one, and stays
    assert finishes(trace) == [90, 30, 30]
    assert ms(cluster.fleet.instance_ps(cluster.now)) == 90 + 30


def test_draining_instance_is_the_first_to_come_back():
    trace = requests((0, 8, 9), (0, 8, 9))
    cluster = load(
        [spec(), spec(), spec()],
        trace,
        to(0, 1),
        policies=scripted(at_10=-1, at_20=1),
        instances=2,
        scaling_interval_ms=10,
    )
    go_on(cluster, until=15)
    assert cluster.fleet.states == ["active", "draining", "absent"]
    go_on(cluster, until=25)
    assert cluster.fleet.states == ["active", "active", "absent"]


def test_crash_of_draining_starting_and_absent_instances():
    trace = requests((0, 8, 30), (0, 8, 30))
    cluster = load(
        [spec(), spec(), spec(), spec()],
        trace,
        to(0, 1),
        policies=scripted(at_10=-1, at_20=0),
        instances=2,
        scaling_interval_ms=10,
        startup_delay_ms=10,
        faults=(fault("crash", 1, 15, 10), fault("crash", 3, 15, 10)),
        on_failure="fail",
    )
    go_on(cluster, until=16)
    assert cluster.fleet.states == ["active", "failed", "absent", "absent"]
    go_on(cluster, until=25)
    assert cluster.fleet.states == ["active", "absent", "absent", "absent"]
    assert ms(cluster.fleet.charged_ps[1]) == 25
    # ordered at 10, crashed in 15-25: ready at 35 instead of 20
    cluster = load(
        [spec(), spec()],
        requests((0, 8, 30)),
        to(0),
        policies=scripted(at_10=1),
        instances=1,
        scaling_interval_ms=10,
        startup_delay_ms=10,
        faults=(fault("crash", 1, 15, 10),),
    )
    for until, state in [(12, "starting"), (20, "failed"), (30, "starting"), (35, "active")]:
        go_on(cluster, until=until)
        assert cluster.fleet.states[1] == state


def test_move_to_a_draining_instance():
    # drained at 30, before the stage ends at 40: aborted; at 40, when the last blocks are under way:
    # committed at 50, and absent when A has ended at 210
    for at, outcome, finish in [
        (30, ("aborted", "destination lost"), 200),
        (40, ("committed", ""), 210),
    ]:
        trace = requests(A)
        cluster = move_with([spec(), spec()], trace, scaling_interval_ms=10)
        cluster.scaling = scripted(**{f"at_{at}": -1})["scaling"]
        go_on(cluster)
        assert reasons(cluster) == [outcome] and finishes(trace) == [finish]
        assert cluster.fleet.states == ["active", "absent"]


def test_scaling_policy_is_asked_until_nothing_is_left_to_do():
    asked = []
    trace = requests((15, 8, 1))
    policies = {"scaling": lambda cluster: asked.append(ms(cluster.now)) or 0}
    play([spec()], trace, policies=policies, scaling_interval_ms=5)
    assert asked == [0, 5, 10, 15, 20]
