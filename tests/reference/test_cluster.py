"""The reference's event loop by hand: one instant, looking, horizon, rejection, router views.

An iteration takes 10 ms, a block is 16 tokens. Times are in ms.
"""

from typing import Any

import pytest

from reference.cluster import Dispatch, ReferenceCluster
from reference.engine import NoProgressError, Observation
from reference.model import PS_PER_MS, InstanceSpec, IterationTime, Request

EMPTY = Observation(0, 0, 0, 0, 0)


def spec(**changes) -> InstanceSpec:
    values = {"engine": "vllm-v1", "time": IterationTime(c0=10.0), "kv_blocks": 100, **changes}
    return InstanceSpec(**values)


def requests(*rows: tuple[int, int, int]) -> list[Request]:
    """Rows are (arrival_ms, prompt, output); every prediction is 7 tokens."""
    return [Request(i, row[0] * PS_PER_MS, row[1], row[2], 7) for i, row in enumerate(rows)]


def to(*instances: int) -> Dispatch:
    """Return a dispatch that follows a script."""
    return lambda cluster, request: instances[request.index]


def play(
    specs: list[InstanceSpec],
    trace: list[Request],
    dispatch: Dispatch = lambda cluster, request: 0,
    until: int | None = None,
    **options: Any,
) -> ReferenceCluster:
    """Run the trace to the end, or until an instant in ms; everything on instance 0 by default."""
    cluster = ReferenceCluster(specs, trace, dispatch, **options)
    cluster.run(None if until is None else until * PS_PER_MS)
    return cluster


def test_router_sees_the_iterations_that_ended_but_none_that_starts_now():
    seen = []

    def dispatch(cluster: ReferenceCluster, request: Request) -> int:
        seen.append(cluster.observe(request, 0))
        return 0

    # At 10 the first request has just ended; the second is placed and does not run yet when the
    # third is looked at. At 15 they run: blocks of 20 and 40 tokens.
    play([spec()], requests((0, 8, 1), (10, 20, 1), (10, 40, 1), (15, 8, 1)), dispatch)
    assert seen == [
        EMPTY,
        EMPTY,
        Observation(n_waiting=1, n_running=0, used_blocks=0, waiting_blocks=2, held_tokens=27),
        Observation(n_waiting=0, n_running=2, used_blocks=5, waiting_blocks=0, held_tokens=74),
    ]


def test_run_until_an_instant_leaves_its_iteration_starts_to_the_next_call():
    cluster = play([spec()], requests((0, 20, 2), (10, 20, 2)), until=0)
    assert cluster.observe(None, 0).n_waiting == 1 and cluster.requests[0].admitted_ps is None
    cluster.run(until_ps=10 * PS_PER_MS)
    # the first iteration has ended, with a token; the second request waits
    assert cluster.requests[0].generated == 1
    assert cluster.observe(None, 0) == Observation(1, 1, 2, 2, 54)
    cluster.run(until_ps=11 * PS_PER_MS)
    assert cluster.observe(None, 0) == Observation(0, 2, 4, 0, 54)


@pytest.mark.parametrize("engine", ["vllm-v1", "vllm-v0", "sarathi", "static"])
def test_looking_never_changes_a_result(engine):
    rows = [(7 * i, 20 + i, 1 + i % 5) for i in range(20)]
    alone, looked_at = requests(*rows), requests(*rows)
    fleet = [spec(engine=engine, kv_blocks=5, batch_size=3)] * 2
    play(fleet, alone, lambda cluster, request: request.index % 2)
    cluster = ReferenceCluster(fleet, looked_at, lambda cluster, request: request.index % 2)
    for instant in range(0, 1000 * PS_PER_MS, 3 * PS_PER_MS + 1):
        cluster.run(until_ps=instant)
        cluster.observe(None, 0)
    cluster.run()
    assert [vars(r) for r in looked_at] == [vars(r) for r in alone]


def test_instances_do_not_touch_each_other():
    # two requests on one instance with one seat take turns, on two they do not
    trace = requests((0, 8, 2), (0, 8, 3))
    play([spec(max_num_seqs=1)] * 2, trace, to(0, 1))
    assert [r.finish_ps for r in trace] == [20 * PS_PER_MS, 30 * PS_PER_MS]
    assert [r.instance for r in trace] == [0, 1]


@pytest.mark.parametrize(
    ("horizon", "status", "tokens"), [(20, "finished", 2), (19, "unfinished", 1)]
)
def test_iteration_that_ends_at_the_horizon_counts(horizon, status, tokens):
    trace = requests((0, 8, 2))
    play([spec()], trace, horizon_ps=horizon * PS_PER_MS)
    assert (trace[0].status, trace[0].generated) == (status, tokens)


def test_nothing_is_offered_or_started_at_the_horizon():
    trace = requests((0, 8, 5), (19, 8, 1), (20, 8, 1))
    play([spec()], trace, horizon_ps=20 * PS_PER_MS)
    assert [r.status for r in trace] == ["unfinished", "unfinished", "not_offered"]
    assert [r.admitted_ps for r in trace] == [0, None, None]
    assert trace[0].generated == 2


def test_static_requests_are_unfinished_until_their_batch_ends():
    # {A, B}: A has its token at 10, the batch ends at 40
    trace = requests((0, 8, 1), (0, 8, 4))
    play([spec(engine="static", batch_size=2)], trace, horizon_ps=39 * PS_PER_MS)
    assert [r.status for r in trace] == ["unfinished"] * 2 and trace[0].first_token_ps is not None


def test_request_that_fits_nowhere_is_rejected_unasked_with_need_and_capacity():
    # 81 tokens need 6 blocks of 16 or 3 of 32
    trace = requests((0, 81, 1), (0, 80, 1))
    fleet = [spec(kv_blocks=5), spec(kv_blocks=2, block_size=32)]
    cluster = play(fleet, trace, to(9, 0))
    assert [r.status for r in trace] == ["rejected", "finished"]
    assert cluster.rejections == [(trace[0], [6, 3], [5, 2])]


def test_request_that_fits_one_instance_of_a_mixed_fleet_is_offered():
    fleet = [spec(kv_blocks=5), spec(kv_blocks=6)]

    def dispatch(cluster: ReferenceCluster, request: Request) -> int:
        return [cluster.fits(request, i) for i in range(2)].index(True)

    trace = requests((0, 81, 1), (0, 80, 1))
    play(fleet, trace, dispatch)
    assert [r.instance for r in trace] == [1, 0]
    with pytest.raises(NoProgressError, match="instance 0"):
        play(fleet, requests((0, 81, 1)), to(0))


def test_stale_router_sees_the_last_refresh_and_its_own_placements_since():
    seen = {}

    def dispatch(cluster: ReferenceCluster, request: Request) -> int:
        seen[request.index] = cluster.observe(request, 0)
        return 0

    # Refreshes at 0 and 20. Routers: 0 has requests 0, 2, 4; 1 has 1, 3. Prompts of 20 (2 blocks)
    # count 27 tokens. The refresh at 20 comes before the arrival at 20 and sees all three running,
    # 6 blocks; by 25 the fourth runs too, but nobody is told.
    trace = requests((0, 20, 9), (1, 20, 9), (2, 20, 9), (20, 20, 9), (25, 20, 9))
    cluster = play([spec()], trace, dispatch, 25, metrics_interval_ps=20 * PS_PER_MS, routers=2)
    one = Observation(n_waiting=1, n_running=0, used_blocks=0, waiting_blocks=2, held_tokens=27)
    three = Observation(n_waiting=0, n_running=3, used_blocks=6, waiting_blocks=0, held_tokens=81)
    assert seen == {0: EMPTY, 1: EMPTY, 2: one, 3: three, 4: three}
    # all routers together have placed two since 20
    assert cluster.observe(None, 0) == Observation(2, 3, 6, 4, 135)
    # router 1 has placed one: the next request of its own would be 5
    assert cluster.observe(Request(5, 0, 1, 1), 0) == Observation(1, 3, 6, 2, 108)


def test_refresh_sees_what_ended_at_its_instant_and_not_what_starts():
    # ends at 10, when the second waits for the only seat
    trace = requests((0, 20, 1), (1, 20, 1))
    cluster = play([spec(max_num_seqs=1)], trace, until=15, metrics_interval_ps=10 * PS_PER_MS)
    assert cluster.observe(None, 0) == Observation(1, 0, 0, 2, 27)
    assert cluster.engines[0].observe() == Observation(0, 1, 2, 0, 27)


def test_empty_trace_ends_at_once():
    cluster = play([spec()], [], metrics_interval_ps=PS_PER_MS)
    assert cluster.now == -1
