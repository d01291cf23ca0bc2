"""Feature rows: by hand, against the records, inside their bounds under overload, and read by a policy."""

import numpy as np
import pytest
from feature_reads import READS, all_features, outlooks
from flat_profile import FLAT
from outlook_naive import iterations_to_free

from servegym.baselines import features
from servegym.baselines.features import (
    CLUSTER_FEATURES,
    INSTANCE_FEATURES,
    LIMIT,
    QUEUE_FEATURES,
    REQUEST_FEATURES,
    fill_cluster,
    fill_instance,
    fill_request,
)
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import dispatch_policy, find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import ENGINE_KINDS, NO_REQUEST
from servegym.simulator.views import HOLD, is_accepting, n_instances
from servegym.traces import Trace, generate

TABLES = {
    "instances": INSTANCE_FEATURES,
    "request": REQUEST_FEATURES,
    "queues": QUEUE_FEATURES,
    "cluster": CLUSTER_FEATURES,
}


def named(table, row) -> dict[str, float]:
    """Return a row's values by name, back in their units."""
    names = [feature.name for feature in table]
    return {
        name: float(value) * feature.scale
        for name, value, feature in zip(names, row, table, strict=True)
    }


def flat(lengths, until_s: float, arrival_s=None, **options) -> Simulation:
    """Return FLAT instances (10 ms an iteration, 1,000 blocks of 16) with true predictions, stopped at until_s."""
    prompts, outputs = np.array(lengths).T
    options = {"instances": 1, "profile": FLAT, "estimator": "oracle"} | options
    arrival_s = np.zeros(len(lengths)) if arrival_s is None else np.array(arrival_s)
    trace = Trace(arrival_s, prompts, outputs)
    simulation = Simulation(trace, ClusterConfig(**options), find_policy("dispatch", "round-robin"))
    simulation.run(until_s)
    return simulation


def test_instance_row_by_hand():
    # As in test_outlook.py: at 35 ms two run, 47 and 5 tokens left, 103 and 19 known, 9 blocks; one of 32 tokens waits
    # for a seat, two blocks; the asker needs 1 block and has not arrived.
    lengths, arrival_s = [(100, 50), (16, 8), (32, 4), (16, 1)], [0.0, 0.0, 0.0, 9.0]
    simulation = flat(lengths, 0.035, arrival_s, max_num_seqs=2, kv_blocks=11)
    found = named(INSTANCE_FEATURES, all_features(simulation, 3)["instances"][0])
    expected = {
        "running": 1.0,
        "waiting": 1,
        "prefilling": 0,
        "prefill_tokens": 0,
        "kv_used": 9 / 11,
        "kv_waiting": 2 / 11,
        "tokens_left": 52,
        "kv_at_ends": 172 / 176,
        "kv_short": 1 / 11,  # 2 + 1 wanted, 2 free
        "free_in": 0.05,  # 6 + 2*1/2 - 2 iterations
        "next_end_in": 0.05,
        "iteration": 10,
        "context": 102 + 18,
        "waiting_prefill": 32 / 2048 * 0.01,  # of an iteration of 2,048 tokens
        "waiting_output": 4,
        "kv_with_request": 12 / 11,
        "running_work": 6027,
        "waiting_work": 134,
        "accepts": 1,
    }
    assert found == pytest.approx(expected, rel=1e-6)


def test_without_a_request_what_depends_on_one_is_zero():
    simulation = flat([(100, 50)] * 30, 0.035, kv_blocks=40, max_num_seqs=2)
    row = all_features(simulation, 0)["instances"][0]
    bare = all_features(simulation)
    depends = ["kv_short", "free_in", "kv_with_request", "accepts"]
    for k, feature in enumerate(INSTANCE_FEATURES):
        if feature.name in depends:
            assert row[k] > 0 and bare["instances"][0, k] == 0
        else:
            assert row[k] == bare["instances"][0, k]
    assert not bare["request"].any()


def test_request_row_by_hand():
    # request 1 arrives at 0.1 s with 100 tokens: 7 of 1,000 blocks
    simulation = flat([(16, 50), (100, 8)], 0.4, [0.0, 0.1])
    found = named(REQUEST_FEATURES, all_features(simulation, 1)["request"])
    expected = [1, 100, 8, 7 / 1000, 0, 0.3]
    assert list(found.values()) == pytest.approx(expected, rel=1e-6)


def test_queue_and_cluster_rows_by_hand():
    # one seat and pull: request 0 runs, the others wait at the gateway, 100 and 32 tokens, since 0.1 and 0.2 s
    lengths, arrival_s = [(16, 90), (100, 8), (32, 4)], [0.0, 0.1, 0.2]
    simulation = flat(lengths, 0.45, arrival_s, max_num_seqs=1, max_local_waiting=0, kv_blocks=100)
    rows = all_features(simulation)
    queue = named(QUEUE_FEATURES, rows["queues"][0])
    assert list(queue.values()) == pytest.approx([2, 100, 8, 0, 0.35, 0, 132, 12], rel=1e-6)
    # 1 + 44 tokens streamed, 16 + 44 in KV and one in flight: 4 blocks; 0.25 s since request 2 arrived
    cluster = named(CLUSTER_FEATURES, rows["cluster"])
    assert list(cluster.values()) == pytest.approx([1, 2, 1, 0.04, 0.25], rel=1e-6)
    simulation.run(0.9)  # request 0 ended at 0.9: the head may go
    assert named(QUEUE_FEATURES, all_features(simulation)["queues"][0])["length"] == 1


def test_since_arrival_is_the_gap_before_a_request_that_arrives_now():
    simulation = flat([(16, 9)] * 3, 0.3, [0.0, 0.1, 0.3])
    assert named(CLUSTER_FEATURES, all_features(simulation)["cluster"])["since_arrival"] == (
        pytest.approx(0.2, rel=1e-6)
    )


def expected_instance(simulation: Simulation, i: int, r: int) -> dict[str, float]:
    """Return what the row of instance i should say about request r, from records and accessors read before."""
    state = simulation.state
    instance, request, shared = state.instances[i], state.requests[r], state.shared[0]
    engine, size = state.engines[instance["engine"]], int(shared["block_size"])
    read = dict(zip(READS, outlooks(simulation)[i].tolist(), strict=True))
    is_static = engine["kind"] == ENGINE_KINDS.index("static")
    seats = int(engine["batch_size"] if is_static else engine["max_num_seqs"])
    pool, free = int(engine["kv_blocks"]), int(instance["free_blocks"])
    wanted = int(instance["waiting_blocks"])
    need = -(-(int(request["prompt_tokens"]) + int(request["generated"])) // size)
    lacking = max(0, wanted + need + int(engine["watermark_blocks"]) - free)
    free_in = iterations_to_free(state, i, lacking) * read["iteration_ms"] / 1e3 if lacking else 0.0
    return {
        "running": instance["n_running"] / seats,
        "waiting": instance["n_waiting"],
        "prefilling": read["n_prefilling"],
        "prefill_tokens": read["prefill_tokens_left"],
        "kv_used": (pool - free) / pool,
        "kv_waiting": wanted / pool,
        "tokens_left": read["predicted_tokens_left"],
        "kv_at_ends": read["tokens_at_predicted_ends"] / (pool * size),
        "kv_short": lacking / pool,
        "free_in": free_in,
        "next_end_in": read["next_predicted_completion_s"],
        "iteration": read["iteration_ms"],
        "waiting_output": read["waiting_predicted_tokens"],
        "kv_with_request": (pool - free + wanted + need) / pool,
        "running_work": read["running_work"],
        "waiting_work": read["waiting_work"],
    }


@pytest.mark.parametrize("options", [{}, {"max_local_waiting": 0}, {"order": "sjf"}], ids=str)
@pytest.mark.parametrize("engine", ENGINE_KINDS)
def test_rows_agree_with_the_records(engine, options):
    trace = generate("azure-conv", 200, 30.0, 4)
    config = ClusterConfig(
        instances=3, engine=engine, kv_blocks=700, max_num_batched_tokens=16_384, **options
    )
    simulation = Simulation(trace, config, find_policy("dispatch", "least-requests"))
    largest = np.zeros(features.N_INSTANCE)
    for until_s in np.linspace(0.03, 40.0, 40):
        simulation.run(until_s)
        r = int(until_s * 7919) % len(trace)
        rows = all_features(simulation, r)["instances"]
        largest = np.maximum(largest, rows.max(axis=0))
        for i, row in enumerate(rows):
            for name, quantity in expected_instance(simulation, i, r).items():
                k = [feature.name for feature in INSTANCE_FEATURES].index(name)
                value = min(max(quantity / INSTANCE_FEATURES[k].scale, 0.0), LIMIT)
                assert row[k] == pytest.approx(value, rel=1e-6), (until_s, i, name)
    waits_here = "max_local_waiting" not in options
    busy = [f.name for f in INSTANCE_FEATURES if waits_here or "waiting" not in f.name]
    assert all(largest[[f.name for f in INSTANCE_FEATURES].index(name)] > 0 for name in busy)


@pytest.mark.parametrize(
    "options", [{}, {"metrics_interval_s": 0.5}, {"max_local_waiting": 0}], ids=str
)
@pytest.mark.parametrize("engine", ENGINE_KINDS)
def test_rows_are_complete_and_bounded_under_ten_times_the_load(engine, options):
    trace = generate("azure-conv", 600, 150.0, 1)
    config = ClusterConfig(
        instances=2, engine=engine, kv_blocks=1500, max_num_batched_tokens=16_384, **options
    )
    policy = find_policy("dispatch", "least-requests")
    simulation = Simulation(trace, config, policy, keeps_outlook=True)
    largest = {name: 0.0 for name in TABLES}
    for until_s in (1.0, 4.0, 30.0):
        simulation.run(until_s)
        for r in (int(NO_REQUEST), 0, 500):
            for name, rows in all_features(simulation, r).items():
                assert np.isfinite(rows).all(), (name, until_s)
                assert rows.min() >= 0 and rows.max() <= LIMIT
                largest[name] = max(largest[name], float(rows.max()))
    assert largest["instances"] > 1


def test_tables_have_names_of_their_own_and_positive_scales():
    for table in TABLES.values():
        assert len({feature.name for feature in table}) == len(table)
        assert all(feature.scale > 0 and feature.unit and feature.meaning for feature in table)


@dispatch_policy(
    source="test: the first that accepts, after reading all rows",
    name="test-reads-features",
    memory=features.N_INSTANCE,
)
def reads_features(cluster, request, params, memory, rng):
    """Return the first accepting instance from the request's index on."""
    chosen = HOLD
    for k in range(n_instances(cluster)):
        i = (request.index + k) % n_instances(cluster)
        fill_instance(cluster, request, i, memory)
        if chosen == HOLD and memory[features.N_INSTANCE - 1] == 1.0:
            chosen = i
    fill_request(cluster, request, memory)
    fill_cluster(cluster, memory)
    return chosen


@dispatch_policy(source="test: the same, without reading", name="test-reads-nothing")
def reads_nothing(cluster, request, params, memory, rng):
    """Return the first accepting instance from the request's index on."""
    for k in range(n_instances(cluster)):
        i = (request.index + k) % n_instances(cluster)
        if is_accepting(cluster, request, i):
            return i
    return HOLD


@pytest.mark.parametrize("stale", [{}, {"metrics_interval_s": 0.2, "routers": 2}], ids=str)
@pytest.mark.parametrize("engine", ENGINE_KINDS)
def test_policy_reads_rows_and_changes_nothing_by_it(engine, stale):
    trace = generate("azure-conv", 300, 20.0, 1)
    options = {"instances": 3, "engine": engine, "kv_blocks": 900, "max_num_seqs": 32} | stale
    config = ClusterConfig(max_num_batched_tokens=16_384, **options)
    runs = [Simulation(trace, config, policy) for policy in (reads_features, reads_nothing)]
    for simulation in runs:
        simulation.run()
    for name in ("instance", "admitted_ps", "first_token_ps", "finish_ps", "preemptions"):
        found, expected = (simulation.state.requests[name] for simulation in runs)
        np.testing.assert_array_equal(found, expected)
    assert runs[0].state.memory.any()
