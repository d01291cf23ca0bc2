"""The metrics on records and counts made by hand, and slowdowns against the engine."""

import math

import numpy as np
import pytest

from servegym.baselines.simulate import simulate
from servegym.simulator import metrics
from servegym.simulator.build import records
from servegym.simulator.config import ClusterConfig
from servegym.simulator.slo import DEFAULT_SLO, Slo, tier_weight
from servegym.simulator.state import (
    CANCELLED,
    FAILED,
    FINISHED,
    NEVER,
    REJECTED,
    REQUEST,
    UNFINISHED,
)
from servegym.simulator.unloaded import slowdown, unloaded_ps
from servegym.traces import Trace

pytestmark = [pytest.mark.boundscheck, pytest.mark.nojit]

MS = 10**9  # ps
LIMIT = DEFAULT_SLO.by_tier(1, None)[0]  # TTFT 1 s, TPOT 100 ms


def record(**fields):
    """One request that arrived at 2 s, was admitted at 2.1, streamed its first token of 5 at 2.5, its last at 2.9."""
    request = records(1, REQUEST)[0]
    usual = {
        "arrival_ps": 2000 * MS,
        "admitted_ps": 2100 * MS,
        "first_token_ps": 2500 * MS,
        "finish_ps": 2900 * MS,
        "output_tokens": 5,
        "status": FINISHED,
    }
    for name, value in (usual | fields).items():
        request[name] = value
    return request


def test_latencies_of_a_finished_request():
    request = record()
    assert metrics.ttft(request) == 0.5  # 2.5 - 2.0
    assert metrics.queue_time(request) == 0.1  # 2.1 - 2.0
    assert metrics.e2e(request) == 0.9  # 2.9 - 2.0
    assert metrics.tpot(request) == 0.1  # (0.9 - 0.5) / (5 - 1)


def test_case_12_one_output_token_has_a_ttft_and_no_tpot():
    """There is no gap to divide by; dividing by zero, or counting it as 0 s, would flatter the mean."""
    request = record(output_tokens=1, finish_ps=2500 * MS)
    assert metrics.ttft(request) == metrics.e2e(request) == 0.5
    assert math.isnan(metrics.tpot(request))
    assert metrics.is_slo_met(request, LIMIT)


def test_unfinished_request_keeps_the_ttft_it_has_and_has_no_e2e():
    request = record(status=UNFINISHED, finish_ps=-1)
    assert metrics.ttft(request) == 0.5
    assert math.isnan(metrics.e2e(request)) and math.isnan(metrics.tpot(request))


def test_request_never_admitted_has_no_latency_but_a_wait():
    request = record(status=UNFINISHED, admitted_ps=-1, first_token_ps=-1, finish_ps=-1)
    for metric in (metrics.ttft, metrics.tpot, metrics.e2e, metrics.queue_time):
        assert math.isnan(metric(request))
    assert metrics.wait_ps(request, 2750 * MS) == 750 * MS  # it has waited from 2.0 to 2.75


@pytest.mark.parametrize("status", [REJECTED, FAILED, CANCELLED])
def test_dropped_request_misses_its_slo_and_pays_the_longest_e2e_within_it(status: int):
    request = record(status=status, finish_ps=2000 * MS)
    assert metrics.is_slo_missed(request, LIMIT, NEVER)
    assert not metrics.is_slo_met(request, LIMIT)
    assert metrics.penalty(request, LIMIT) == pytest.approx(1.0 + 0.1 * 4)  # TTFT + 4 gaps
    assert metrics.penalty(request, DEFAULT_SLO.by_tier(1, 7.0)[0]) == 7.0
    assert metrics.penalty(record(), LIMIT) == 0.0


@pytest.mark.parametrize(
    ("first_ms", "finish_ms", "is_met"),
    [
        (3000, 3400, True),  # exactly 1 s, then exactly 4 * 100 ms
        (3001, 3401, False),  # TTFT 1.001 s
        (3000, 3401, False),  # TPOT 100.25 ms
    ],
)
def test_slo_limits_are_inclusive(first_ms: int, finish_ms: int, is_met: bool):
    request = record(first_token_ps=first_ms * MS, finish_ps=finish_ms * MS)
    assert metrics.is_slo_met(request, LIMIT) == is_met
    assert metrics.is_slo_missed(request, LIMIT, NEVER) != is_met


@pytest.mark.parametrize(
    ("first_ms", "cut_ms", "is_overdue"),
    [
        (-1, 3000, False),  # no token for exactly 1 s: it may still come in time
        (-1, 3001, True),
        (2500, 2900, False),  # 4 gaps may take until 2.9
        (2500, 2901, True),
        (3001, 3002, True),  # streamed, but late
    ],
)
def test_unfinished_request_misses_its_slo_once_overdue(
    first_ms: int, cut_ms: int, is_overdue: bool
):
    first_ps = first_ms * MS if first_ms >= 0 else -1
    request = record(status=UNFINISHED, first_token_ps=first_ps, finish_ps=-1)
    assert metrics.is_slo_missed(request, LIMIT, cut_ms * MS) == is_overdue
    assert not metrics.is_slo_met(request, LIMIT)


def test_tier_limits_grow_and_weights_halve():
    limits = Slo(ttft_s=0.5, tpot_s=0.05).by_tier(3, None)
    np.testing.assert_allclose(limits["ttft_s"], [0.5, 1.0, 1.5])
    np.testing.assert_allclose(limits["tpot_s"], [0.05, 0.10, 0.15])
    assert [tier_weight(tier) for tier in range(3)] == [1.0, 0.5, 0.25]


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_slo_that_is_no_limit_is_refused(value: float):
    with pytest.raises(ValueError, match="tpot_s"):
        Slo(tpot_s=value)


def test_attainment_goodput_and_total_latency_of_sums():
    assert metrics.slo_attainment(3, 4) == 0.75
    assert metrics.slo_attainment(0, 0) is None
    assert metrics.goodput(3, 2.0) == 1.5
    assert metrics.goodput(0, 0.0) is None
    # 10 million requests of 1,000 s each: 10^22 ps, more than an int64 holds
    assert metrics.total_latency(10**22, 0.5) == 1e10 + 0.5


def test_jain_index_is_one_for_equals_and_one_nth_for_one_who_has_all():
    assert metrics.jain_index([2.0, 2.0, 2.0]) == pytest.approx(1.0)
    assert metrics.jain_index([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert metrics.jain_index([1.0, 2.0]) == pytest.approx(0.9)  # 3^2 / (2 * 5)
    assert metrics.jain_index([]) is None


@pytest.mark.parametrize("engine", ["vllm-v1", "vllm-v0", "sarathi", "static"])
def test_request_that_meets_nobody_is_not_slowed_down(engine: str):
    # 5,000 prompt tokens are three chunks of a budget of 2,048
    config = ClusterConfig(
        instances=1,
        engine=engine,
        max_num_batched_tokens=8192 if engine == "vllm-v0" else 2048,
        profile="a100_sxm/Llama-2-7B/tp1",
    )
    result = simulate(Trace([1.5], [5000], [70]), config)
    request, row = result.records[0], result.engines[0]
    assert request["finish_ps"] - request["arrival_ps"] == unloaded_ps(row, 5000, 70)
    assert slowdown(row, request) == 1.0
