"""Result: the table, the summary, and what is saved, on runs small enough to work out by hand.

A FLAT iteration takes 10 ms.
"""

import json
import math

import numpy as np
import pandas as pd
import pytest
from flat_profile import FLAT, SLOW, one_server
from hypothesis import given, settings
from hypothesis import strategies as st

from servegym.baselines.simulate import replay, simulate
from servegym.simulator.accounting import LEVELS
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import estimator, find_policy
from servegym.simulator.result import Result
from servegym.simulator.simulation import Simulation
from servegym.simulator.slo import Slo
from servegym.traces import Labels, Trace, generate

pytestmark = [pytest.mark.boundscheck, pytest.mark.nojit]

COLUMNS = [
    "request_id", "tier", "category", "tenant", "arrival_s", "prompt_tokens", "output_tokens",
    "predicted_tokens", "status", "reason", "instance", "admitted_s", "first_token_s", "finish_s",
    "ttft_s", "tpot_s", "e2e_s", "queue_s", "preemptions", "migrations", "recomputed_tokens",
]  # fmt: skip
STATUSES = ("finished", "rejected", "failed", "cancelled", "unfinished")
ENGINES = ["vllm-v1", "vllm-v0", "sarathi", "static"]


def play(*rows: tuple[float, int, int], config: ClusterConfig, **options) -> Result:
    """Run rows of (arrival in ms, prompt, output) under round-robin."""
    ms, prompts, outputs = zip(*rows, strict=True)
    trace = Trace(np.array(ms) * 1e-3, prompts, outputs)
    return simulate(trace, config, "round-robin", **options)


def crowded(seed: int, **options) -> Result:
    """200 requests on two instances whose KV is too small for them: preemptions happen."""
    trace = generate("azure-conv", 200, 50.0, seed).assign_tiers([0.5, 0.3, 0.2], seed)
    config = ClusterConfig(instances=2, kv_blocks=700, tiers=3, max_num_seqs=32)
    return simulate(trace, config, "random", seed=seed, **options)


def test_table_of_two_requests_by_hand():
    # The first runs 0-10, 10-20, 20-30 ms. The second arrives at 5, joins at 10, streams at 20.
    result = play((0, 20, 3), (5, 20, 1), config=ClusterConfig(instances=1, profile=FLAT))
    table = result.requests
    assert list(table.columns) == COLUMNS
    assert table["status"].tolist() == ["finished", "finished"]
    np.testing.assert_allclose(table["admitted_s"], [0.0, 0.010])
    np.testing.assert_allclose(table["first_token_s"], [0.010, 0.020])
    np.testing.assert_allclose(table["finish_s"], [0.030, 0.020])
    np.testing.assert_allclose(table["ttft_s"], [0.010, 0.015])
    np.testing.assert_allclose(table["queue_s"], [0.0, 0.005])
    np.testing.assert_allclose(table["e2e_s"], [0.030, 0.015])
    np.testing.assert_allclose(table["tpot_s"], [0.010, np.nan])
    assert table["predicted_tokens"].tolist() == [2, 2]  # the mean of 3 and 1
    assert table["instance"].tolist() == [0, 0]


def test_summary_of_the_same_two_requests_by_hand():
    config = ClusterConfig(instances=2, profile=(SLOW, FLAT))
    # Instance 0 is SLOW with two GPUs: 20, 40, 60 ms. Instance 1 serves the second from 5 to 15.
    summary = play((0, 20, 3), (5, 20, 1), config=config).summary()
    assert summary["offered"] == summary["finished"] == 2
    assert summary["e2e_s"]["mean"] == pytest.approx((0.060 + 0.010) / 2)
    assert summary["e2e_s"]["p50"] == pytest.approx(0.035)
    assert summary["e2e_s"]["p99"] == pytest.approx(0.010 + 0.99 * 0.050)
    assert summary["tpot_s"]["n"] == 1 and summary["tpot_s"]["p50"] == pytest.approx(0.020)
    assert summary["span_s"] == pytest.approx(0.060)
    assert summary["throughput_per_s"] == pytest.approx(2 / 0.060)
    assert summary["output_tokens_per_s"] == pytest.approx(4 / 0.060)
    assert summary["goodput_per_s"] == pytest.approx(2 / 0.060)
    assert summary["instance_seconds"] == pytest.approx(2 * 0.060)
    assert summary["gpu_seconds"] == pytest.approx((2 + 1) * 0.060)
    assert summary["gpu_seconds_per_slo_met"] == pytest.approx(0.090)
    assert summary["total_latency_s"] == pytest.approx(0.060 + 0.010)
    assert summary["busy_fraction"] == pytest.approx((0.060 + 0.010) / (2 * 0.060))
    assert summary["max_wait_s"] == 0.0


def test_slo_can_be_chosen_and_its_limits_grow_with_the_tier():
    trace = Trace([0.0, 0.0], [20, 20], [3, 3], tier=[0, 1])
    result = simulate(trace, ClusterConfig(instances=1, profile=FLAT, tiers=2), "round-robin")
    # TPOT is 10 ms for both: tier 0 may take 6 ms, tier 1 may take 12.
    summary = result.summary(Slo(ttft_s=1.0, tpot_s=0.006))
    assert [tier["slo_met"] for tier in summary["tiers"]] == [0, 1]
    assert summary["slo_attainment"] == 0.5
    assert summary["weighted_slo_attainment"] == pytest.approx(0.5 / 1.5)  # weights 1 and 1/2
    assert summary["slo"] == {"ttft_s": 1.0, "tpot_s": 0.006}


@pytest.mark.parametrize(
    ("engine", "capacity"), [("vllm-v1", 4), ("vllm-v0", 3), ("sarathi", 3), ("static", 4)]
)
def test_case_01_request_larger_than_an_instance_is_rejected_with_need_and_capacity(
    engine: str, capacity: int
):
    """Admitting it would block the queue for ever; the last output token takes no slot."""
    size = 16 * capacity
    rows = [(0, size + 1, 1), (1, size - 8, 10), (2, size - 8, 9), (3, 16, 2)]
    config = one_server(engine=engine, kv_blocks=4, batch_wait_s=0.0)
    result = play(*rows, config=config)
    # prompt alone: size + 1 tokens; prompt + output - 1: size + 1; exactly size; small
    table = result.requests
    assert table["status"].tolist() == ["rejected", "rejected", "finished", "finished"]
    reason = f"needs {capacity + 1} KV blocks, an instance can hold {capacity}"
    assert table["reason"].tolist()[:2] == [reason, reason]
    assert table["reason"].isna().tolist() == [False, False, True, True]
    assert table["instance"].tolist()[:2] == [-1, -1]
    assert table["request_id"].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(table["finish_s"][:2], table["arrival_s"][:2])  # at arrival
    summary = result.summary()
    assert (summary["rejected"], summary["finished"]) == (2, 2)
    assert summary["slo_attainment"] == 0.5
    # penalties: 1 s + no gap, 1 s + 9 gaps of 100 ms; the rest are latencies
    served = table["e2e_s"][2:].sum()
    assert summary["total_latency_s"] == pytest.approx(1.0 + 1.9 + served)


def test_prompt_beyond_the_prefill_budget_of_v0_says_so():
    config = one_server(engine="vllm-v0", max_num_batched_tokens=64)
    reasons = play((0, 64, 2), config=config).requests["reason"].tolist()
    assert reasons == ["needs 65 tokens in one prefill, an instance takes 64"]


def test_case_05_horizon_cuts_requests_in_flight():
    """Tokens after the horizon would leak the future; leaving the overdue out would flatter an overload."""
    config = one_server(tiers=1)
    # One at a time: 0-30, 30-60, ...; the horizon is 45 ms. The last arrives at it: not offered.
    result = play((0, 20, 3), (0, 20, 3), (1, 20, 3), (45, 20, 3), config=config, horizon_s=0.045)
    table = result.requests
    assert table["status"].tolist() == ["finished", "unfinished", "unfinished"]
    np.testing.assert_allclose(table["first_token_s"], [0.010, 0.040, np.nan])
    np.testing.assert_allclose(table["finish_s"], [0.030, np.nan, np.nan])
    summary = result.summary(Slo(ttft_s=0.035, tpot_s=0.1))
    assert (summary["offered"], summary["finished"], summary["unfinished"]) == (3, 1, 2)
    assert (summary["ttft_s"]["n"], summary["e2e_s"]["n"]) == (2, 1)
    assert summary["ttft_s"]["population"] == "offered requests that streamed a first token"
    # The second was late (40 ms), the third has waited 44 ms: both missed.
    assert (summary["slo_met"], summary["slo_missed"], summary["slo_undecided"]) == (1, 2, 0)
    assert summary["slo_attainment"] == pytest.approx(1 / 3)
    assert summary["total_latency_s"] == pytest.approx(0.030 + 0.045 + 0.044)
    assert summary["max_wait_s"] == pytest.approx(0.044)
    assert summary["span_s"] == pytest.approx(0.045)
    lenient = result.summary()
    assert (lenient["slo_missed"], lenient["slo_undecided"]) == (0, 2)


def test_case_06_empty_trace_has_counts_and_nones():
    """A division by zero or an index into nothing would take a whole grid of runs down."""
    result = simulate(Trace([], [], []), ClusterConfig(instances=2, tiers=2), "round-robin")
    summary = result.summary()
    assert [summary[name] for name in ("offered", *STATUSES)] == [0] * 6
    assert {summary["e2e_s"][name] for name in ("mean", "p50", "p90", "p95", "p99")} == {None}
    undefined = (
        "slo_attainment", "weighted_slo_attainment", "goodput_per_s", "throughput_per_s",
        "gpu_seconds_per_slo_met", "busy_fraction", "jain_index", "max_wait_s", "rate_per_s",
    )  # fmt: skip
    assert [summary[name] for name in undefined] == [None] * len(undefined)
    assert summary["total_latency_s"] == 0.0
    assert len(result.requests) == 0 and list(result.requests.columns) == COLUMNS


def test_case_06_nothing_finishes():
    """All percentiles are undefined, all requests are misses."""
    config = one_server(kv_blocks=1)
    summary = play((0, 100, 2), (0, 100, 2), config=config).summary()
    assert (summary["offered"], summary["rejected"], summary["finished"]) == (2, 2, 0)
    assert summary["ttft_s"]["mean"] is None and summary["e2e_s"]["p99"] is None
    assert (summary["slo_attainment"], summary["gpu_seconds_per_slo_met"]) == (0.0, None)
    json.dumps(summary, allow_nan=False)


def test_case_06_all_percentiles_of_one_request_are_equal():
    """One value is its own mean and every percentile."""
    summary = play((5, 20, 3), config=ClusterConfig(instances=1, profile=FLAT)).summary()
    for measure, value in (("ttft_s", 0.010), ("tpot_s", 0.010), ("e2e_s", 0.030)):
        found = [summary[measure][name] for name in ("mean", "p50", "p90", "p95", "p99")]
        assert found == [value] * 5 and summary[measure]["n"] == 1


def test_case_16_identities_hold_under_preemption():
    """Recompute is where tokens get doubled and first tokens move; neither may show."""
    result = crowded(seed=3)
    table, summary = result.requests, result.summary()
    preempted = table[table["preemptions"] > 0]
    assert len(preempted) >= 5 and max(preempted["recomputed_tokens"]) > 0
    gaps = (table["output_tokens"] - 1) * table["tpot_s"].fillna(0.0)
    np.testing.assert_allclose(table["ttft_s"] + gaps, table["e2e_s"], rtol=1e-12)
    np.testing.assert_allclose(table["arrival_s"] + table["e2e_s"], table["finish_s"], rtol=1e-12)
    assert min(table["ttft_s"] - table["queue_s"]) >= 0.0
    assert min(table["finish_s"] - table["first_token_s"]) >= 0.0
    tokens = summary["output_tokens_per_s"] * summary["span_s"]
    assert tokens == pytest.approx(result.trace.output_tokens.sum())
    assert summary["preemptions"] == table["preemptions"].sum()
    assert summary["preempted_requests"] == len(preempted)
    assert summary["recomputed_tokens"] == table["recomputed_tokens"].sum()


def test_first_token_stays_when_the_request_is_preempted_after_it():
    # 3 blocks. Both prompts (16 tokens, one block) stream at 10 ms. At 20 ms the first needs its
    # 2nd block (17 tokens), so does the second: one of them waits until the other is done.
    config = ClusterConfig(instances=1, profile=FLAT, kv_blocks=3)
    table = play((0, 16, 8), (0, 16, 8), config=config).requests
    assert table["preemptions"].tolist() == [0, 1]
    np.testing.assert_allclose(table["first_token_s"], [0.010, 0.010])
    assert table["finish_s"].tolist()[1] > table["finish_s"].tolist()[0] == pytest.approx(0.080)
    assert table["tpot_s"].tolist()[1] > table["tpot_s"].tolist()[0] == pytest.approx(0.010)


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 200), st.integers(1, 120), st.integers(1, 12), st.integers(0, 1)),
        min_size=1,
        max_size=25,
    ),
    horizon_ms=st.none() | st.integers(1, 400),
    engine=st.sampled_from(ENGINES),
)
@settings(max_examples=60, deadline=None)
def test_summary_agrees_with_the_table(rows, horizon_ms, engine):
    ms, prompts, outputs, tiers = np.array(sorted(rows)).T
    config = ClusterConfig(
        instances=2, profile=FLAT, engine=engine, kv_blocks=8, tiers=2, max_num_seqs=4,
        max_num_batched_tokens=64,
    )  # fmt: skip
    horizon_s = None if horizon_ms is None else horizon_ms * 1e-3
    result = simulate(
        Trace(ms * 1e-3, prompts, outputs, tiers), config, "round-robin", horizon_s=horizon_s
    )
    table, summary = result.requests, result.summary()
    assert summary["offered"] == len(table) == sum(summary[name] for name in STATUSES)
    assert summary["slo_met"] + summary["slo_missed"] <= summary["offered"]
    for name in STATUSES:
        assert summary[name] == (table["status"] == name).sum()
    check_distributions(summary, table)
    for tier in summary["tiers"]:
        check_distributions(tier, table.loc[table["tier"] == tier["tier"]])
    if horizon_s is not None:
        assert not (table[["first_token_s", "finish_s"]].to_numpy() > horizon_s).any()
    check_total_latency(summary, table, horizon_s)


def check_distributions(part: dict, table: pd.DataFrame) -> None:
    """Assert that means and percentiles are numpy's over the defined values."""
    for measure in ("ttft_s", "tpot_s", "e2e_s"):
        values = table[measure].dropna().to_numpy()
        assert part[measure]["n"] == len(values)
        found = [part[measure][name] for name in ("mean", "p50", "p90", "p95", "p99")]
        if not len(values):
            assert found == [None] * 5
            continue
        percentiles = np.percentile(values, [100 * level for level in LEVELS])
        np.testing.assert_allclose(found, [values.mean(), *percentiles], rtol=1e-9)


def check_total_latency(summary: dict, table: pd.DataFrame, horizon_s: float | None) -> None:
    """Assert the definition of the total latency, on the table's columns."""
    end = table["finish_s"].fillna(np.inf if horizon_s is None else horizon_s)
    penalty = (1.0 + table["tier"]) * (1.0 + 0.1 * (table["output_tokens"] - 1))
    total = (end - table["arrival_s"]).sum() + penalty[table["status"] == "rejected"].sum()
    assert summary["total_latency_s"] == pytest.approx(total, abs=1e-9)


def test_case_32_an_hour_without_traffic_costs_no_time():
    """A simulator that ticks would take 360,000 iterations; averages of nothing are None, not 0."""
    burst = [(0, 20, 5), (3, 40, 7), (4, 20, 2)]
    hour_ms = 3_600_000
    config = ClusterConfig(instances=1, profile=FLAT, tiers=2)
    alone = play(*burst, config=config)
    twice = play(*burst, *[(ms + hour_ms, p, o) for ms, p, o in burst], config=config)
    assert twice.instances["n_iterations"][0] == 2 * alone.instances["n_iterations"][0]
    for name in ("ttft_s", "e2e_s", "queue_s"):
        np.testing.assert_allclose(
            twice.requests[name], np.tile(alone.requests[name], 2), atol=1e-9
        )
    assert twice.summary()["tiers"][1]["ttft_s"]["mean"] is None  # nobody in tier 1
    assert twice.summary()["tiers"][1]["slo_attainment"] is None


def test_case_33_saved_trace_replays_to_identical_requests(tmp_path):
    """Without it a published number cannot be checked; a rounded arrival moves iterations."""
    trace = generate("azure-conv", 500, 30.0, 1).assign_tiers([0.7, 0.3], 1)
    trace = Trace(
        trace.arrival_s, trace.prompt_tokens, trace.output_tokens, trace.tier,
        tenant=Labels.of(["b", "a"] * 250), name="mine",
    )  # fmt: skip
    config = ClusterConfig(instances=3, tiers=2, order="priority", kv_blocks=900, max_num_seqs=64)
    result = simulate(trace, config, "power-of-two:d=3", seed=11, horizon_s=14.0)
    assert min(result.summary()["unfinished"], result.summary()["finished"]) > 100
    result.save(tmp_path / "run")
    saved = Result.load(tmp_path / "run")
    pd.testing.assert_frame_equal(saved.requests, result.requests, check_categorical=False)
    assert saved.summary() == json.loads(json.dumps(result.summary()))
    again = replay(tmp_path / "run")
    pd.testing.assert_frame_equal(again.requests, result.requests)
    assert again.summary() == result.summary()


def test_saved_result_with_another_trace_is_refused(tmp_path):
    play((0, 20, 3), config=one_server()).save(tmp_path)
    Trace([0.0], [21], [3]).save(tmp_path / "trace.parquet")
    with pytest.raises(ValueError, match="workload hash differs"):
        Result.load(tmp_path)


def test_jain_index_compares_tenants_by_mean_slowdown():
    trace = Trace([0.0, 0.0], [20, 20], [1, 1], tenant=Labels.of(["a", "b"]))
    # One at a time: a takes 10 ms, its unloaded time; b waits for it and takes 20 ms, twice that.
    summary = simulate(trace, one_server(), "round-robin").summary()
    assert summary["jain_index"] == pytest.approx((1 + 2) ** 2 / (2 * (1 + 4)))


def test_result_taken_half_way_is_a_copy_of_what_has_happened():
    trace = Trace([0.0, 0.0, 9.0], [20] * 3, [3] * 3)
    simulation = Simulation(trace, one_server(), find_policy("dispatch", "round-robin"))
    simulation.run(until_s=0.045)
    half_way = simulation.result()
    simulation.run()
    assert half_way.requests["status"].tolist() == ["finished", "unfinished"]
    assert half_way.total_latency_s == pytest.approx(0.030 + 0.045)
    assert simulation.result().summary()["finished"] == 3


def test_table_is_narrow():
    table = crowded(seed=0).requests
    assert table.memory_usage(deep=True, index=False).sum() < 150 * len(table)  # bytes
    assert {str(table[name].dtype) for name in ("tier", "prompt_tokens", "instance")} == {"int32"}
    assert {str(table[name].dtype) for name in ("status", "reason", "tenant")} == {"category"}


@estimator(source="test: an estimator that fails", name="test-broken")
def broken(request, params, memory, rng):
    """Predict not a number."""
    return math.nan


def warnings_with(profile: str, prompt: int = 100, **options) -> list[str]:
    config = ClusterConfig(instances=1, profile=profile, max_num_batched_tokens=8192, **options)
    return play((0, prompt, 3), config=config).summary()["warnings"]


def test_warnings_say_what_to_distrust():
    assert warnings_with("a100_sxm/Llama-2-7B/tp1") == []
    (beyond,) = warnings_with("a100_sxm/Llama-2-7B/tp1", prompt=3000)  # fitted up to 2,048
    assert "left the profile's fitted range with 3000 prefill tokens" in beyond
    (estimate,) = warnings_with("a10/Llama-2-7B/tp1")
    assert "datasheet estimate" in estimate
    (replaced,) = warnings_with("a100_sxm/Llama-2-7B/tp1", estimator="test-broken")
    assert replaced.startswith("1 predictions")
