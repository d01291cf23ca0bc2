"""Cases that must hold, of whole clusters: gateway, moves, scaling, faults and clients.

Each test's docstring says why it is there. FLAT instances take 10 ms an iteration, a block is 16 tokens; times in ms.
"""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from events import events_of, streamed_tokens
from flat_profile import FLAT
from random_cluster_cases import KINDS, random_cluster_case
from test_cluster_reference import compare

from servegym.baselines.system_table import SYSTEMS
from servegym.baselines.systems import find_system, system_names
from servegym.simulator.config import ClusterConfig, Fault
from servegym.simulator.fault_schedule import draw_faults
from servegym.simulator.policy import dispatch_policy, find_policy, migration_policy, policy_names
from servegym.simulator.profiles import profiles
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import CANCELLED, FINISHED, MIGRATION, OUTCOMES, REJECTED, UNFINISHED
from servegym.simulator.views import HOLD, is_accepting, n_instances, now_s
from servegym.testing.conservation import check_blocks, check_conservation, check_drained
from servegym.traces import Trace
from servegym.traces.labels import Labels

MS = 10**9
ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
LOG = [
    "instance",
    "admitted_ps",
    "first_token_ps",
    "finish_ps",
    "preemptions",
    "migrations",
    "status",
]
MOVES = ["start_ps", "end_ps", "request", "source", "destination", "blocks", "outcome"]
DISPATCH = [
    name
    for name in policy_names("dispatch")
    if find_policy("dispatch", name).function.__module__.startswith("servegym.")
]
SHIPPED = [name for name in system_names() if name in SYSTEMS or name in DISPATCH]

# FLAT with KV that can be sent: 16,000 bytes a block, 10 ms over a link of .0016 GB/s.
_MOVES = replace(profiles()[FLAT], model="flat-moves", kv_bytes_per_token=1000)
profiles()[_MOVES.name] = _MOVES
SLOW_LINK = 0.0016


# CASE 4


def busy_trace(n: int = 30) -> Trace:
    """Return bursts within 150 ms, three tiers, two tenants; one request fits nowhere, every sixth has one token."""
    random = np.random.default_rng(7)
    arrival_s = np.sort(random.choice([0.0, 0.0101, 0.02, 0.05, 0.0789, 0.15], n))
    prompt, output = random.integers(1, 50, n), random.integers(1, 25, n)
    output[::6], prompt[5] = 1, 500
    tenant = Labels(("a", "b"), random.integers(0, 2, n).astype(np.int16))
    return Trace(arrival_s, prompt, output, tier=random.integers(0, 3, n), tenant=tenant)


FLEET: dict[str, Any] = {
    "instances": 3, "profile": _MOVES.name, "tiers": 3, "kv_blocks": 9, "max_num_seqs": 4, "batch_size": 3,
}  # fmt: skip
HOLDS: dict[str, Any] = {"queue": "test-turns", "admission": "test-gate", "hold_timer_s": 0.015}
MIGRATES: dict[str, Any] = {"rebalance_interval_s": 0.004, "link_gb_per_s": SLOW_LINK}
SCALES: dict[str, Any] = {
    "scaling": "test-size", "max_instances": 5, "scaling_interval_s": 0.02, "startup_delay_s": 0.015,
}  # fmt: skip
TIMES_OUT: dict[str, Any] = {
    "timeout_s": (0.06, 0.2, None), "client_retries": 2, "retry_backoff_s": 0.012,
}  # fmt: skip


def failing(seed: int, **options: Any) -> dict[str, Any]:
    """Return the options with random faults of every kind, each some tens of ms apart."""
    kinds = ("crash", "slow", "metrics", "link")
    faults = draw_faults(ClusterConfig(**FLEET, **options), 0.15, 0.03, 0.6, seed, kinds=kinds)
    return {**options, "faults": faults}


def simulation_of(system: str, horizon_s: float | None = None, **options: Any) -> Simulation:
    """Return a system's simulation of the busy trace."""
    chosen = find_system(system)
    config = chosen.configure(ClusterConfig(**FLEET, **options))
    if system in ("n-tier", "llumnix"):  # they set their own interval
        config = ClusterConfig(**{**config.model_dump(), "rebalance_interval_s": 0.004})
    dispatch_params = chosen.params
    return Simulation(
        busy_trace(), config, chosen.policy, dispatch_params=dispatch_params, horizon_s=horizon_s
    )


def check_at_every_event(system: str, horizon_s: float | None = None, **options: Any) -> Counter:
    """Assert conservation at every event, and that to look changes nothing; return what happened."""
    simulation, n_events = simulation_of(system, horizon_s, **options), 0
    for _ in events_of(simulation):
        check_conservation(simulation)
        check_blocks(simulation)
        n_events += 1
    assert n_events > 20
    check_conservation(simulation)
    straight = simulation_of(system, horizon_s, **options)
    straight.run()
    np.testing.assert_array_equal(simulation.state.requests[LOG], straight.state.requests[LOG])
    np.testing.assert_array_equal(ledger_of(simulation)[MOVES], ledger_of(straight)[MOVES])
    records = simulation.state.requests
    if horizon_s is None:
        assert not (records["status"] == UNFINISHED).any()
        check_drained(simulation)
    else:
        for name in ("admitted_ps", "first_token_ps", "finish_ps"):
            assert records[name].max() <= horizon_s * 1e12
    assert records["status"][5] == REJECTED
    return happened(simulation)


def ledger_of(simulation: Simulation) -> np.ndarray:
    """Return the moves that have ended."""
    return simulation.state.ledger[: simulation.state.control[0]["n_ledger"]]


def happened(simulation: Simulation) -> Counter:
    """Return how often moves ended how, and what else the cluster went through."""
    control, gateway = simulation.state.control[0], simulation.state.gateway[0]
    counts = Counter(OUTCOMES[outcome] for outcome in ledger_of(simulation)["outcome"])
    counts["preempted"] = int(simulation.state.instances["n_preemptions"].sum())
    counts["cancelled"] = int((simulation.state.requests["status"] == CANCELLED).sum())
    for name in (
        "n_crashes",
        "n_crash_retries",
        "n_client_retries",
        "n_scale_ups",
        "n_scale_downs",
    ):
        counts[name] = int(control[name])
    for name in ("n_holds", "n_admission_holds", "n_admission_rejects"):
        counts[name] = int(gateway[name])
    return counts


PARTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "push limit": ({"max_local_waiting": 1, "queue_by": "tenant"}, ("preempted",)),
    "pull": ({"max_local_waiting": 0, "queue_by": "tier"}, ()),
    "holds": ({"max_local_waiting": 0, "queue_by": "tenant", **HOLDS}, ("n_holds", "n_admission_holds")),
    "n-tier moves": ({**MIGRATES, "migration": "n-tier"}, ("committed", "cold", "preempted")),
    "llumnix moves": ({**MIGRATES, "migration": "llumnix"}, ("committed", "preempted")),
    "scaling": (SCALES, ("n_scale_ups", "n_scale_downs")),
    "faults": (failing(1), ("n_crashes", "n_crash_retries")),
    "clients": (TIMES_OUT, ("cancelled", "n_client_retries")),
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_case_04_conservation_with_each_part(part):
    """Every part moves requests in a way of its own; each must lose and double none, alone and cut by a horizon."""
    options, wanted = PARTS[part]
    seen = Counter()
    for system in ("least-requests", "llumnix-dispatch", "n-tier", "driftsched-weighted"):
        for engine in ENGINES:
            seen += check_at_every_event(system, engine=engine, **options)
            seen += check_at_every_event(system, 0.117, engine=engine, **options)
    assert all(seen[name] for name in wanted), seen


@pytest.mark.parametrize("system", SHIPPED)
def test_case_04_conservation_of_every_system_with_all_parts_together(system):
    """What one part leaves half done another finds: a crash in a move, a time limit of a parked request."""
    seen = Counter()
    for seed, engine in enumerate(ENGINES):
        migration = ("n-tier", "llumnix")[seed % 2]
        options = failing(
            seed, **SCALES, **TIMES_OUT, **MIGRATES, migration=migration, engine=engine
        )
        seen += check_at_every_event(system, **options)
        options = {**options, **HOLDS, "max_local_waiting": seed % 2}
        seen += check_at_every_event(system, 0.213, **options)
    for name in ("n_crash_retries", "n_client_retries", "n_scale_ups", "n_admission_holds"):
        assert seen[name], (name, seen)
    assert seen["committed"] and any(seen[name] for name in OUTCOMES[2:]), seen


def test_case_04_moves_commit_and_abort_under_tight_kv():
    """A test of conservation in which no move fails would not see what a failed one leaves behind."""
    seen = Counter()
    for seed in range(6):
        for migration in ("n-tier", "llumnix"):
            options = failing(seed, **MIGRATES, **TIMES_OUT, migration=migration)
            seen += check_at_every_event("least-requests", **options)
    assert seen["committed"] > 5 and seen["cold"] > 5, seen
    aborted = [name for name in OUTCOMES[2:] if seen[name]]
    assert len(aborted) >= 4, seen


# CASE 8


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", [{}, {**HOLDS, "queue_by": "tenant"}], ids=["plain", "holds"])
def test_case_08_with_one_instance_and_pull_all_routers_give_the_same_log(engine, options):
    """Where there is nothing to choose, a difference is a router that asks for room its own way."""
    one = {**FLEET, "instances": 1, "max_local_waiting": 0, "engine": engine, **options}
    logs = {}
    for name in DISPATCH:
        simulation = Simulation(busy_trace(), ClusterConfig(**one), find_policy("dispatch", name))
        simulation.run()
        logs[name] = simulation.state.requests
    expected = logs["round-robin"]
    assert (expected["status"] == FINISHED).sum() > 20
    for log in logs.values():
        np.testing.assert_array_equal(log, expected)


# CASE 16


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("migration", ["n-tier", "llumnix"])
def test_case_16_identities_hold_under_moves_crashes_and_gateway_queues(migration, engine):
    """Whoever carries a request elsewhere may count its tokens twice or start its clock anew."""
    seen = Counter()
    for seed in range(3):
        for limit in (None, 0):
            options = failing(seed, **MIGRATES, migration=migration, engine=engine)
            simulation = simulation_of("least-requests", max_local_waiting=limit, **options)
            first_tokens = simulation.state.requests["first_token_ps"].copy()
            for _ in events_of(simulation):
                now = simulation.state.requests["first_token_ps"]
                told = first_tokens >= 0
                np.testing.assert_array_equal(now[told], first_tokens[told])
                first_tokens = now.copy()
            check_identities(simulation)
            seen += happened(simulation)
    assert seen["n_crash_retries"] and (seen["committed"] or engine == "static"), seen


def check_identities(simulation: Simulation) -> None:
    """Assert what holds between the times and the tokens of finished requests."""
    result = simulation.result()
    table, summary = result.requests, result.summary()
    is_done = np.array(table["status"] == "finished")
    ttft, tpot, e2e, queue, arrival, finish = (
        np.array(table[f"{name}_s"])[is_done]
        for name in ("ttft", "tpot", "e2e", "queue", "arrival", "finish")
    )
    outputs = np.array(table["output_tokens"])[is_done]
    assert len(outputs) == summary["finished"] == len(table) - 1
    # in a static batch a request of one token, whose TPOT is undefined, ends with its batch
    is_told = outputs >= (2 if simulation.config.engine == "static" else 1)
    assert is_told.sum() > 20
    last = ttft + (outputs - 1) * np.where(outputs > 1, tpot, 0.0)
    np.testing.assert_allclose(last[is_told], e2e[is_told], rtol=1e-12)
    np.testing.assert_allclose(arrival + e2e, finish, rtol=1e-12)
    assert (ttft >= queue).all()
    tokens = summary["output_tokens_per_s"] * summary["span_s"]
    assert tokens == pytest.approx(outputs.sum())
    records = result.records[is_done]
    np.testing.assert_array_equal(records["generated"], records["output_tokens"])
    assert summary["migrations"] == summary["moves"] == table["migrations"].sum()


@pytest.mark.parametrize("migration", ["n-tier", "llumnix"])
def test_case_16_time_from_admission_is_that_of_the_tokens_and_of_the_stops(migration):
    """A stop for a move that is not in the request's own latency makes migration look free."""
    # who was neither preempted nor computed again: 10 ms a token, and every stop, of moves that failed, too
    stops = 0.0
    for system in ("round-robin", "random", "least-requests"):
        simulation = simulation_of(system, **MIGRATES, migration=migration)
        simulation.run()
        result = simulation.result()
        table, moves, stopped = result.requests, result.moves, np.zeros(len(result.records))
        is_live = np.array(moves["kind"] == "live")
        stop_s = np.nan_to_num(np.array(moves["downtime_s"])[is_live])  # NaN: it never stopped
        np.add.at(stopped, np.array(moves["request_id"])[is_live], stop_s)
        is_calm = np.array((table["status"] == "finished") & (table["preemptions"] == 0))
        expected = 0.010 * np.array(table["output_tokens"]) + stopped
        served = np.array(table["finish_s"]) - np.array(table["admitted_s"])
        np.testing.assert_allclose(served[is_calm], expected[is_calm], rtol=1e-9)
        stops += stopped[is_calm].sum()
    assert stops > 0.0


# CASE 19


@migration_policy(source="test: what a list says", name="test-scripted-moves", memory=40)
def scripted(cluster, moves, params, memory, rng):
    """Write the moves that memory has for now: (ms, source, destination, request), until ms = 0."""
    n = 0
    for k in range(memory.shape[0] // 4):
        at_ms = memory[4 * k]
        if at_ms > 0 and round(now_s(cluster) * 1000) == at_ms:
            for column in range(3):
                moves[n, column] = int(memory[4 * k + 1 + column])
            n += 1
    return n


@dispatch_policy(source="test: where a list says", name="test-listed-or-other", memory=100)
def listed_or_other(cluster, request, params, memory, rng):
    """Return the instance that memory has for the request, else the first that accepts."""
    listed = int(memory[request.index])
    if is_accepting(cluster, request, listed):
        return listed
    for i in range(n_instances(cluster)):
        if is_accepting(cluster, request, i):
            return i
    return HOLD


Row = tuple[float, int, int]  # arrival in ms, prompt, output
# Alone on an instance A holds 3 blocks from 0 to 90, has 2 tokens at 20 and ends at 200. Moved at 20: two blocks are
# copied in 20-40, at 40 it has 4 tokens and stops, the third is copied in 40-50; it goes on at 50 and ends at 210.
A: Row = (0, 40, 20)
AT_20 = (20, 0, 1, 0)  # ms, source, destination, request


def moved(
    rows: list[Row], *moves: tuple[int, int, int, int], places: tuple[int, ...] = (), **options: Any
) -> Simulation:
    """Return two instances after the run, every event looked at; requests go to places, the rest to 0."""
    arrival, prompt, output = np.array(rows).T
    values: dict[str, Any] = {
        "instances": 2, "profile": _MOVES.name, "migration": "test-scripted-moves", "rebalance_interval_s": 0.01,
        "link_gb_per_s": SLOW_LINK,
    }  # fmt: skip
    config = ClusterConfig(**{**values, **options})
    simulation = Simulation(Trace(arrival / 1e3, prompt, output), config, listed_or_other)
    simulation.state.memory[: len(places)] = places
    begin = simulation.state.policies["memory_begin"][MIGRATION]
    script = np.array(moves, float).ravel()
    simulation.state.memory[begin : begin + len(script)] = script
    streamed = [0]
    for _ in events_of(simulation):
        check_conservation(simulation)
        check_blocks(simulation)
        streamed.append(streamed_tokens(simulation))
    check_drained(simulation)
    if config.timeout_s is None:
        # at most one token a request between two looks, none taken back
        assert all(0 <= later - earlier <= len(rows) for earlier, later in pairwise(streamed))
        assert streamed[-1] == output.sum()
        assert (simulation.state.requests["status"] == FINISHED).all()
        check_tokens(simulation)
    return simulation


def check_tokens(simulation: Simulation) -> None:
    """Assert that records and summary count every output token once."""
    records, summary = simulation.state.requests, simulation.result().summary()
    np.testing.assert_array_equal(records["generated"], records["output_tokens"])
    tokens = summary["output_tokens_per_s"] * summary["span_s"]
    assert tokens == pytest.approx(records["output_tokens"].sum())


def finishes(simulation: Simulation) -> list[float]:
    """Return when each request ended, ms."""
    return (simulation.state.requests["finish_ps"] / MS).tolist()


def outcomes(simulation: Simulation) -> list[tuple[str, float]]:
    """Return outcome and end, ms, of the moves in the result's table."""
    moves = simulation.result().moves
    ends = [round(1e3 * end_s, 6) for end_s in moves["end_s"]]
    return list(zip(moves["outcome"].tolist(), ends, strict=True))


def fault(kind: Any, instance: int, at_ms: float, duration_ms: float = 500) -> Fault:
    """Return a fault; times in ms."""
    return Fault(kind=kind, instance=instance, at_s=at_ms / 1e3, duration_s=duration_ms / 1e3)


def test_case_19_and_16_a_move_commits_and_its_stop_is_in_the_latency():
    """The base of the cases below: one owner, 10 ms of stop, each token once, first token where it was."""
    simulation = moved([A], AT_20)
    assert finishes(simulation) == [210] and outcomes(simulation) == [("committed", 50)]
    result = simulation.result()
    move = result.moves.iloc[0]
    assert (move["kind"], move["blocks"], move["stages"]) == ("live", 3, 2)
    assert move["downtime_s"] == pytest.approx(0.010)
    request = result.requests.iloc[0]
    assert (request["instance"], request["migrations"]) == (1, 1)
    assert request["ttft_s"] == pytest.approx(0.010)
    # 19 gaps, 18 of 10 ms and one of 20
    assert request["tpot_s"] == pytest.approx(0.200 / 19)


@pytest.mark.parametrize(("horizon_ms", "stages", "blocks"), [(30, 1, 2), (45, 2, 2)])
def test_a_move_under_way_at_the_horizon_is_in_the_table_and_in_no_count(
    horizon_ms, stages, blocks
):
    # as above: the first stage, of 2 of 3 blocks, from 20 to 40 ms; then it stops, and commits at 50
    config = ClusterConfig(
        instances=2,
        profile=_MOVES.name,
        migration="test-scripted-moves",
        rebalance_interval_s=0.01,
        link_gb_per_s=SLOW_LINK,
    )
    trace = Trace([0.0], [A[1]], [A[2]])
    simulation = Simulation(trace, config, listed_or_other, horizon_s=horizon_ms / 1e3)
    begin = simulation.state.policies["memory_begin"][MIGRATION]
    simulation.state.memory[begin : begin + len(AT_20)] = AT_20
    simulation.run()
    result = simulation.result()
    (move,) = result.moves.to_dict("records")
    expected = {"outcome": "under way", "kind": "live", "stages": stages, "blocks": blocks}
    expected |= {"request_id": 0, "source": 0, "destination": 1, "start_s": 0.02}
    assert {name: move[name] for name in expected} == expected
    assert np.isnan([move["end_s"], move["downtime_s"]]).all()
    summary = result.summary()
    assert (summary["moves"], summary["aborted_moves"], summary["refused_moves"]) == (0, 0, 0)


def test_case_19_source_finishes_during_the_copy():
    """A copy that ended in nothing kept blocks reserved at the destination, or revived the request."""
    simulation = moved([(0, 40, 3)], AT_20)
    assert finishes(simulation) == [30] and outcomes(simulation) == [("ended first", 40)]
    # ... and in the iteration after which it was to stop: a block in 7.5 ms, the stage ends at 35, the request at 40
    simulation = moved([(0, 40, 4)], AT_20, link_gb_per_s=16e-3 / 7.5)
    assert finishes(simulation) == [40] and outcomes(simulation) == [("ended first", 40)]
    assert simulation.state.requests["migrations"][0] == 0


def test_case_19_destination_is_full_at_the_last_stage():
    """Blocks asked for at the last moment may be gone: the request must run on where it is, as if nothing had been."""
    # B has 20 + 9 tokens, 2 blocks of 4, until 90: two more are reserved at 20, the third is not to be had at 40
    simulation = moved([A, (0, 20, 9)], AT_20, places=(0, 1), kv_blocks=4)
    assert finishes(simulation) == [200, 90] and outcomes(simulation) == [("no room", 40)]
    assert np.isnan(np.array(simulation.result().moves["downtime_s"])).all()
    # the same for want of a seat
    simulation = moved([A, (0, 20, 9)], AT_20, places=(0, 1), max_num_seqs=1)
    assert finishes(simulation) == [200, 90] and outcomes(simulation) == [("no room", 40)]


def test_case_19_destination_crashes():
    """A request parked for a destination that dies must go on at its source, with the tokens it had."""
    # in the last stage: parked at 40 with 4 tokens, back at 45, 16 tokens more
    simulation = moved([A], AT_20, faults=(fault("crash", 1, 45),))
    assert finishes(simulation) == [205] and outcomes(simulation) == [("destination lost", 45)]
    assert np.array(simulation.result().moves["downtime_s"]).tolist() == pytest.approx([0.005])
    assert simulation.state.requests["recomputed_tokens"][0] == 0
    # in the first stage it runs on and never stops
    simulation = moved([A], AT_20, faults=(fault("crash", 1, 35),))
    assert finishes(simulation) == [200] and outcomes(simulation) == [("destination lost", 35)]


def test_case_19_parked_request_returns_between_two_iterations():
    """A request that comes back into an iteration in flight would stream a token that was never computed."""
    # B keeps instance 0 busy in 40-50: A, parked at 40, is back at 50 with 4 tokens
    simulation = moved([A, (0, 8, 30)], AT_20, faults=(fault("crash", 1, 45),))
    assert finishes(simulation) == [210, 300] and outcomes(simulation) == [("destination lost", 50)]


def test_case_19_source_crashes():
    """A request in a move is on two instances; when its own dies it must be retried once, by one owner."""
    # Parked at 40 with 4 tokens, 43 computed. From 45 on instance 1 its 44 known tokens give the fifth at 55; 15 more.
    simulation = moved([A], AT_20, faults=(fault("crash", 0, 45),))
    assert finishes(simulation) == [205] and outcomes(simulation) == [("source lost", 45)]
    request = simulation.state.requests[0]
    assert (request["instance"], request["migrations"], request["recomputed_tokens"]) == (1, 0, 43)
    assert request["first_token_ps"] == 10 * MS
    # In the first stage: 3 tokens at 30, the iteration after it is lost at 35; 17 more.
    simulation = moved([A], AT_20, faults=(fault("crash", 0, 35),))
    assert finishes(simulation) == [205] and outcomes(simulation) == [("source lost", 35)]
    assert simulation.state.requests["recomputed_tokens"][0] == 42


def test_case_19_both_crash_at_one_instant():
    """Two ends of one move lost at once must free it once, and send the request back once."""
    for order in ((0, 1), (1, 0)):
        faults = tuple(fault("crash", i, 45, 15) for i in order)
        simulation = moved([A], AT_20, faults=faults)
        # both are back at 60: 44 known tokens are computed by 70, 15 tokens more
        assert finishes(simulation) == [220]
        assert simulation.state.requests["recomputed_tokens"][0] == 43
        expected = "source lost" if order[0] == 0 else "destination lost"
        assert outcomes(simulation) == [(expected, 45)]


def test_case_19_source_crashes_or_client_gives_up_on_the_way_back():
    """A request on its way back to its source is in no list but that of the moves."""
    # A would be back at 50, when B's iteration ends. At 60, on instance 1, both compute their known tokens: the fifth
    # of each at 70, A's last at 220, B's at 320.
    rows: list[Row] = [A, (0, 8, 30)]
    faults = (fault("crash", 1, 45, 15), fault("crash", 0, 47, 15))
    simulation = moved(rows, AT_20, faults=faults)
    assert finishes(simulation) == [220, 320] and outcomes(simulation) == [("source lost", 47)]
    # both clients give up at 47: A at once, B at the end of its fifth iteration
    simulation = moved(rows, AT_20, faults=faults[:1], timeout_s=0.047)
    assert finishes(simulation) == [47, 50] and outcomes(simulation) == [("ended first", 47)]
    assert simulation.state.requests["generated"].tolist() == [4, 5]


def test_case_19_preempted_during_the_copy():
    """Blocks that are copied while they are taken away are nobody's: the move is void, the request computes anew."""
    # 6 blocks; A and B hold 3 each from 10 on, for 48 tokens. At 170 A wants its fourth: B goes. B's move, 160-180, is
    # void. A ends at 180; B, 49 tokens, is admitted: 18th token at 190, end at 210.
    simulation = moved([(0, 32, 18), (0, 32, 20)], (160, 0, 1, 1), kv_blocks=6)
    assert finishes(simulation) == [180, 210] and outcomes(simulation) == [("preempted first", 180)]
    assert simulation.state.requests["preemptions"].tolist() == [0, 1]


def test_case_19_timed_out_while_parked():
    """A client that gives up in the middle of a move must free both ends."""
    simulation = moved([A], AT_20, timeout_s=0.045)
    assert finishes(simulation) == [45] and outcomes(simulation) == [("ended first", 45)]
    assert simulation.state.requests["status"][0] == CANCELLED
    assert simulation.state.requests["generated"][0] == 4
    # It asks again at 55, from nothing: first token at 65, cancelled at 100, when its fifth iteration is in flight.
    again: dict[str, Any] = {"client_retries": 1, "retry_backoff_s": 0.01}
    simulation = moved([A], AT_20, timeout_s=0.045, **again)
    assert finishes(simulation) == [105] and outcomes(simulation) == [("ended first", 45)]
    assert simulation.state.requests["generated"][0] == 5


def test_case_19_timed_out_and_back_before_the_stage_ends():
    """A second attempt must not be taken for the request whose copy is under way."""
    # Cancelled at 30 (limit 25), back at 32: that one runs from 32 to 42, 52 (limit 57), 62; the copy of the first
    # ends at 40. The second has 3 tokens.
    again: dict[str, Any] = {"client_retries": 1, "retry_backoff_s": 0.002}
    simulation = moved([A], AT_20, timeout_s=0.025, **again)
    assert outcomes(simulation) == [("ended first", 40)]
    assert finishes(simulation) == [62] and simulation.state.requests["generated"][0] == 3


def test_case_19_move_to_itself_is_refused():
    """Source and destination that are one would reserve blocks twice and free them once."""
    simulation = moved([A], (20, 0, 0, 0))
    assert finishes(simulation) == [200] and outcomes(simulation) == []
    assert simulation.result().summary()["refused_moves"] == 1
    # one that waits, too: B behind A
    simulation = moved([A, (5, 8, 2)], (20, 0, 0, 1), max_num_seqs=1)
    assert finishes(simulation) == [200, 220] and outcomes(simulation) == []
    assert simulation.state.requests["migrations"].tolist() == [0, 0]


@pytest.mark.parametrize("end", [0, 1])
def test_case_19_link_is_lost(end):
    """A copy over a dead link never ends: the move must, and none begins until it is back."""
    # in the last stage; refused at 60, when it is still down
    simulation = moved([A], AT_20, (60, 0, 1, 0), faults=(fault("link", end, 45, 20),))
    assert finishes(simulation) == [205] and outcomes(simulation) == [("link lost", 45)]
    assert simulation.result().summary()["refused_moves"] == 1
    # in the first stage it never stops
    simulation = moved([A], AT_20, faults=(fault("link", end, 30, 20),))
    assert finishes(simulation) == [200] and outcomes(simulation) == [("link lost", 30)]


# The engine with bounds checks, and interpreted


# interpreted 64-bit random numbers wrap around on purpose
wraps = pytest.mark.filterwarnings("ignore:overflow encountered in scalar")


@pytest.mark.boundscheck
@pytest.mark.parametrize("kind", KINDS)
def test_clusters_stay_in_bounds_on_random_cases(kind):
    """Out-of-range reads are silent in compiled code; with NUMBA_BOUNDSCHECK=1 they are not."""
    seen = sum((compare(random_cluster_case(kind, seed)) for seed in range(400, 408)), Counter())
    assert seen["cases"] + seen["no progress"] == 8


@wraps
@pytest.mark.nojit
@pytest.mark.parametrize("kind", KINDS)
def test_interpreted_clusters_agree_with_the_reference(kind):
    """What compiles by chance, or rounds otherwise when it is compiled, differs here."""
    # the twelve with the fewest tokens of a hundred, since interpreting costs by the token
    smallest = sorted(range(500, 600), key=lambda seed: size_of(kind, seed))[:12]
    seen = sum((compare(random_cluster_case(kind, seed)) for seed in smallest), Counter())
    assert seen["cases"] + seen["no progress"] == 12


def size_of(kind: str, seed: int) -> int:
    """Return how many tokens a case's requests have."""
    trace = random_cluster_case(kind, seed).trace
    return int((trace.prompt_tokens + trace.output_tokens).sum())
