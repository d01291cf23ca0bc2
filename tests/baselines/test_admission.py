"""Admission policies by hand, and what must hold for every one that ships.

A FLAT server takes 10 ms an iteration and a block is 16 tokens.
"""

import numpy as np
import pytest
from flat_profile import FLAT, one_server

from servegym.baselines.simulate import simulate
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import dispatch_policy, find_policy, policy_names
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED, REJECTED
from servegym.simulator.views import HOLD, is_accepting, now_s, tier
from servegym.traces import Labels, Trace
from servegym.traces.workload import generate

ADMISSION = [
    name
    for name in policy_names("admission")
    if find_policy("admission", name).function.__module__.startswith("servegym.")
]
STALE = {"metrics_interval_s": 0.7, "routers": 3}
MS = 10**9


@dispatch_policy(source="test: lower tiers wait at the gateway for .5 s", name="test-later")
def later(cluster, request, params, memory, rng):
    """Return instance 0, but hold what is not of tier 0 before .5 s."""
    may_go = tier(request) == 0 or now_s(cluster) >= 0.5
    return 0 if may_go and is_accepting(cluster, request, 0) else HOLD


def run(trace: Trace, config: ClusterConfig, dispatch: str = "least-requests") -> np.ndarray:
    """Return the request records of a whole run."""
    simulation = Simulation(trace, config, find_policy("dispatch", dispatch))
    simulation.run()
    return simulation.state.requests


def rejected(records: np.ndarray) -> list[int]:
    """Return who was rejected."""
    return np.flatnonzero(records["status"] == REJECTED).tolist()


@pytest.mark.parametrize("local_limit", [None, 0], ids=["push", "pull"])
def test_queue_cap_rejects_a_third_of_its_tier_and_of_no_other(local_limit):
    # at t = 0 three of tier 0 and one of tier 1; at 1 s they are gone and two more fit
    trace = Trace(
        [0.0, 0.0, 0.0, 0.0, 1.0, 1.0], np.full(6, 10), np.full(6, 3), tier=[0, 0, 0, 1, 0, 0]
    )
    config = one_server(
        tiers=2, admission="queue-cap", admission_params={"cap_0": 2}, max_local_waiting=local_limit
    )
    assert rejected(run(trace, config)) == [2]


@pytest.mark.parametrize("queue_by", ["tier", "none", "tenant"])
@pytest.mark.parametrize("tiers", [1, 2])
def test_queue_cap_counts_its_tier_in_queues_by_whatever(queue_by, tiers):
    # one seat, all at t = 0: the first is dispatched, the others wait at the gateway. Two tiers: three of tier 0 and
    # two of tier 1 get in; one tier: three
    tier_of = np.array([0, 1, 0, 0, 1, 0, 1]) % tiers
    tenant = Labels(("a", "b"), np.array([0, 0, 1, 1, 0, 0, 1]))
    trace = Trace(np.zeros(7), np.full(7, 10), np.full(7, 3), tier=tier_of, tenant=tenant)
    caps = {"cap_0": 3, "cap_1": 2}
    config = one_server(
        tiers=tiers,
        admission="queue-cap",
        admission_params=caps,
        max_local_waiting=0,
        queue_by=queue_by,
    )
    assert rejected(run(trace, config)) == ([3, 4, 5, 6] if tiers == 1 else [5, 6])


def test_queue_cap_of_nothing_lets_nobody_in():
    trace = Trace([0.0, 1.0], [10, 10], [3, 3], tier=[0, 1])
    config = one_server(tiers=2, admission="queue-cap", admission_params={"cap_1": 0})
    assert rejected(run(trace, config)) == [1]


@pytest.mark.parametrize("local_limit", [None, 0], ids=["push", "pull"])
def test_slo_shed_rejects_what_the_backlog_makes_late(local_limit):
    # 350 tokens each at 1,000 tokens/s and 10 ms for the own prompt, all at t = 0: .01, .36, .71 and 1.06 s.
    # Limits: 1 s, and 2 s for tier 1.
    trace = Trace(np.zeros(5), np.full(5, 350), np.ones(5), tier=[0, 0, 0, 0, 1])
    config = one_server(
        tiers=2,
        admission="slo-shed",
        admission_params={"prefill_tokens_per_s": 1000, "slack": 1},
        max_local_waiting=local_limit,
    )
    assert rejected(run(trace, config)) == [3]


def test_slo_shed_does_not_count_less_urgent_queues_before_a_request():
    # one runs, .32 s of tokens; three of tier 1 wait at the gateway: 1.28 s in all, but .32 s for tier 0
    trace = Trace(
        [0.0, 0.001, 0.001, 0.001, 0.002], np.full(5, 320), np.full(5, 9), tier=[1] * 4 + [0]
    )
    config = one_server(
        tiers=2,
        admission="slo-shed",
        admission_params={"prefill_tokens_per_s": 1000, "slack": 1},
        max_local_waiting=0,
    )
    assert rejected(run(trace, config)) == []
    as_urgent = Trace(trace.arrival_s, trace.prompt_tokens, trace.output_tokens)
    assert rejected(run(as_urgent, config)) == [4]
    # where queues are no tiers, all that wait count
    for queue_by in ("none", "tenant"):
        other = ClusterConfig(**(config.model_dump() | {"queue_by": queue_by}))
        assert rejected(run(trace, other)) == [4]


@pytest.mark.parametrize(
    ("options", "n_accepted"),
    [
        ({"max_num_seqs": 8}, 4),
        ({"max_num_seqs": 8, "kv_blocks": 70}, 2),
        ({"max_num_seqs": 32, "max_num_batched_tokens": 64}, 8),
    ],
    ids=["seats", "kv", "budget"],
)
def test_slo_shed_takes_the_rate_of_a_loaded_instance_from_its_profile(options, n_accepted):
    # P = 300, O = 100: b = min(seats, KV / 350, budget / 4), R = 3b / 10 ms. Seats, b = 8: 2,400 tokens/s, and with
    # k ahead .01 + 2 * 300k / 2400 <= 1 for k <= 3. KV, b = 1,120 / 350 = 3.2: 960 tokens/s, k <= 1.
    # Budget, b = 16: 4,800 tokens/s, and the own prompt takes 5 iterations: .05 + .125k, k <= 7.
    trace = Trace(np.zeros(12), np.full(12, 300), np.full(12, 100))
    config = one_server(admission="slo-shed", **options)
    assert rejected(run(trace, config)) == list(range(n_accepted, 12))


@pytest.mark.parametrize("engine", ["vllm-v1", "sarathi", "vllm-v0", "static"])
def test_slo_shed_predicts_the_ttft_of_a_prompt_alone(engine):
    for prompt in (100, 1900) if engine == "vllm-v0" else (100, 2000, 2049, 6000, 20_000):
        trace = Trace([0.0], [prompt], [50])
        alone_s = float(np.asarray(simulate(trace, engine=engine).requests["first_token_s"])[0])
        for factor, n_rejected in ((1 + 1e-9, 0), (1 - 1e-6, 0 if engine == "static" else 1)):
            options = {"admission": "slo-shed", "admission_params": {"ttft_s": factor * alone_s}}
            summary = simulate(trace, engine=engine, **options).summary()
            assert summary["rejected"] == n_rejected, (prompt, factor)


def attained(load: float, admission: str | None) -> tuple[float, int]:
    """Return the SLO attainment of Azure's conversations in short memory, and how many were rejected."""
    trace = generate("azure-conv", 3000, 10.0, 0)
    summary = simulate(trace, load=load, scenario="tight", admission=admission).summary()
    return summary["slo_attainment"], summary["rejected"]


def test_slo_shed_sheds_nothing_where_nothing_is_late_and_helps_in_overload():
    assert attained(0.85, "slo-shed") == attained(0.85, None) == (1.0, 0)
    for load in (1.15, 2.0):
        assert attained(load, "slo-shed")[0] > 2 * attained(load, None)[0]


def gated(trace: Trace, dispatch: str = "least-requests", **options) -> np.ndarray:
    """Return the records on one server of 100 blocks with two tiers: H_0 = floor(.2 * 100) = 20."""
    config = ClusterConfig(
        instances=1, profile=FLAT, kv_blocks=100, tiers=2, admission="headroom-gated", **options
    )
    return run(trace, config, dispatch)


def test_headroom_gated_holds_what_would_take_the_blocks_of_more_urgent_tiers():
    # 0 holds 1111 + 10 - 1 = 1120 tokens = 70 blocks up to 100 ms. 1 asks for 10: 20 are left, it may; it is gone at
    # 30 ms. 2 asks for 11 at 35 ms: 19 would be left, it waits for 0 to go; 3 asks for 11 and is of tier 0.
    trace = Trace(
        [0.0, 0.015, 0.035, 0.036], [1111, 160, 176, 176], [10, 1, 1, 1], tier=[0, 1, 1, 0]
    )
    assert (gated(trace)["finish_ps"] / MS).tolist() == [100, 30, 110, 50]


def test_headroom_gated_lets_a_request_larger_than_the_rest_into_an_idle_instance():
    # 95 blocks leave less than 20
    records = gated(Trace([0.0], [1500], [20], tier=[1]))
    assert records["status"].tolist() == [FINISHED]


def test_headroom_gated_does_not_promise_the_same_blocks_twice_in_a_round():
    # 0 holds 70 blocks up to 100 ms; 40, 40 and 20 wait for it. Then 40 + 40 leave 20; the third must wait for
    # those two, which end at 120 ms, though there is room for it.
    trace = Trace([0.0, 0.01, 0.01, 0.01], [1111, 639, 639, 319], [10, 2, 2, 2], tier=[0, 1, 1, 1])
    assert (gated(trace)["first_token_ps"] / MS).tolist() == [10, 110, 110, 130]


def test_headroom_gated_counts_what_was_placed_once_though_a_queue_never_empties():
    # 0, of tier 1, is accepted at once and stands in its queue, 10 blocks, up to .5 s. Three of tier 0 and 40 blocks
    # each come and go: for each there are 100 - 10 blocks. At .4 s one of 91 blocks would take those of 0: it is held.
    trace = Trace(
        [0.0, 0.1, 0.2, 0.3, 0.4], [160, 640, 640, 640, 1456], [1] * 5, tier=[1, 0, 0, 0, 0]
    )
    records = gated(trace, "test-later", order="priority", hold_timer_s=0.1)
    first_token_ms = (records["first_token_ps"] / MS).tolist()
    assert first_token_ms[1:4] == [110, 210, 310]
    assert first_token_ms[0] == 510 < first_token_ms[4]


def test_headroom_gated_has_the_headroom_of_every_other_policy():
    # 70 blocks run; a vector keeps 15 for tier 0: of 30, 15 may go, 16 not
    for blocks, end_ms in ((15, 30), (16, 110)):
        trace = Trace([0.0, 0.015], [1111, 16 * blocks], [10, 1], tier=[0, 1])
        vector = {"form": 2, "h0": 0.15}
        assert gated(trace, admission_params=vector)["finish_ps"][1] == end_ms * MS


def test_headroom_gated_keeps_nothing_of_a_single_tier():
    trace = Trace([0.0, 0.015], [1111, 480], [10, 1])
    config = ClusterConfig(instances=1, profile=FLAT, kv_blocks=100, admission="headroom-gated")
    # 70 + 30 = 100 blocks
    assert (run(trace, config)["finish_ps"] / MS).tolist() == [100, 30]


# Every admission policy.


@pytest.mark.parametrize("options", [{}, STALE], ids=["true", "stale"])
@pytest.mark.parametrize("local_limit", [None, 0], ids=["push", "pull"])
@pytest.mark.parametrize("name", ADMISSION)
def test_everybody_is_served_or_rejected_and_none_is_held_for_ever(name, local_limit, options):
    trace = generate("azure-conv", 300, 60.0, 3)
    trace = Trace(
        trace.arrival_s, trace.prompt_tokens, trace.output_tokens, tier=np.arange(300) % 3
    )
    config = ClusterConfig(
        instances=2,
        profile=FLAT,
        tiers=3,
        max_num_seqs=8,
        admission=name,
        admission_params={f"cap_{p}": 40 for p in range(3)} if name == "queue-cap" else {},
        max_local_waiting=local_limit,
        **options,
    )
    status = run(trace, config)["status"]
    assert set(status.tolist()) <= {FINISHED, REJECTED}
    served = (status == FINISHED).mean()
    assert served == 1 if name == "headroom-gated" else 0.15 < served < 0.6


@pytest.mark.parametrize("name", ADMISSION)
@pytest.mark.parametrize("prompt", [100, 8_000])
def test_nobody_is_turned_away_from_an_idle_cluster(name, prompt):
    trace = Trace(np.arange(20.0), np.full(20, prompt), np.full(20, 3), tier=np.arange(20) % 3)
    config = ClusterConfig(instances=2, profile=FLAT, tiers=3, admission=name)
    records = run(trace, config)
    assert (records["status"] == FINISHED).all()
    assert (records["admitted_ps"] == records["arrival_ps"]).all()
