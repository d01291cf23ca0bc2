"""Queue policies by hand, and what must hold for every one that ships.

One FLAT server of one seat takes 10 ms a token and pulls: what waits, waits at the gateway.
"""

import numpy as np
import pytest
from flat_profile import FLAT, one_server

from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy, policy_names
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED
from servegym.traces import Labels, Trace
from servegym.traces.workload import generate

QUEUES = [
    name
    for name in policy_names("queue")
    if find_policy("queue", name).function.__module__.startswith("servegym.")
]
ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
STALE = {"metrics_interval_s": 0.7, "routers": 3}


def run(trace: Trace, config: ClusterConfig, seed: int = 0) -> Simulation:
    """Run to the end."""
    simulation = Simulation(trace, config, find_policy("dispatch", "least-requests"), seed=seed)
    simulation.run()
    return simulation


def tiers_served(tiers: list[int], queue: str, **options) -> list[int]:
    """Return the tiers of requests that all come at t = 0, in the order in which one server finishes them."""
    n = len(tiers)
    options = {"outputs": np.full(n, 5), "arrival_s": np.zeros(n)} | options
    trace = Trace(options.pop("arrival_s"), np.full(n, 10), options.pop("outputs"), tier=tiers)
    config = one_server(tiers=max(tiers) + 1, queue=queue, max_local_waiting=0, **options)
    records = run(trace, config).state.requests
    return records["tier"][np.argsort(records["finish_ps"])].tolist()


def test_weighted_deals_five_three_and_two_slots_in_turn():
    # 6 of tier 0 (P), 4 of tier 1 (S), 4 of tier 2 (B): PPPPPSSSBB, then P, S and BB are left
    served = tiers_served([0] * 6 + [1] * 4 + [2] * 4, "weighted")
    assert served == [0] * 5 + [1] * 3 + [2] * 2 + [0, 1, 2, 2]


def test_weighted_skips_the_slots_of_empty_queues():
    # no S: PPPPPBB, P and two B, and the last B
    assert tiers_served([0] * 6 + [2] * 5, "weighted") == [0] * 5 + [2] * 2 + [0] + [2] * 3


def test_weighted_takes_the_users_slots():
    slots = {"slots_0": 1, "slots_1": 2}
    served = tiers_served([0] * 4 + [1] * 4, "weighted", queue_params=slots)
    assert served == [0, 1, 1, 0, 1, 1, 0, 0]


def test_weighted_serves_a_queue_without_slots_only_when_no_other_can_be():
    served = tiers_served([0] * 3 + [1] * 3, "weighted", queue_params={"slots_1": 0})
    assert served == [0, 0, 0, 1, 1, 1]


def test_trickle_lets_a_quarter_through_and_is_strict_otherwise():
    # The first comes alone. Then tier 1 earns .25 a choice: 1 at the fifth and at the ninth.
    served = tiers_served([0] * 8 + [1] * 3, "trickle", queue_params={"share_1": 0.25})
    assert served == [0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1]


def test_trickle_of_no_share_is_strict_priority():
    served = tiers_served([2, 1, 0] * 3, "trickle", queue_params={"share_1": 0, "share_2": 0})
    assert served == [2] + [0] * 3 + [1] * 3 + [2] * 2


def test_trickle_keeps_shares_that_sum_to_one():
    # .5, .3 and .2 of 60 dispatches, after the first few, while no queue is empty
    shares = {"share_0": 0.5, "share_1": 0.3, "share_2": 0.2}
    served = tiers_served([0] * 60 + [1] * 60 + [2] * 60, "trickle", queue_params=shares)
    assert np.bincount(served[10:70]) == pytest.approx([30, 18, 12], abs=1)


def test_virtual_token_counter_serves_equal_weighted_tokens():
    # A of tier 0 costs 10 + 2 * 5 = 20, one of tier 1 10 + 2 * 20 = 50. Counters before each choice:
    # (0, -) 0; both come to 20 after it: (20, 20) 0, (40, 20) 1, (40, 70) 0, (60, 70) 0, (80, 70) 1,
    # (80, 120) 0, (100, 120) 0, (120, 120) 0, (140, 120) 1
    served = tiers_served(
        [0] * 7 + [1] * 3,
        "virtual-token-counter",
        outputs=[5] * 7 + [20] * 3,
        estimator="oracle",
    )
    assert served == [0, 0, 1, 0, 0, 1, 0, 0, 0, 1]


def test_virtual_token_counter_gives_no_credit_for_idle_time():
    # 20 each, 50 ms each; tier 1 comes at 120 ms, when tier 0 has been charged 60, and starts from there:
    # at 150 ms (60, 60) 0, (80, 60) 1, (80, 80) 0, (100, 80) 1, (100, 100) 0, then 1. From 0 it would go thrice.
    served = tiers_served(
        [0] * 6 + [1] * 3,
        "virtual-token-counter",
        arrival_s=[0.0] * 6 + [0.12] * 3,
        estimator="oracle",
    )
    assert served == [0, 0, 0, 0, 1, 0, 1, 0, 1]


def test_fcfs_takes_the_head_that_arrived_first():
    # 50 ms each. The first is served to .05, when tiers 0 and 1 head the queues with those of .02 and .01;
    # arrivals of one instant go by place in the trace, whatever their tier.
    arrival_s = [0.0, 0.01, 0.02, 0.03, 0.03, 0.03]
    served = tiers_served([2, 1, 0, 2, 0, 1], "fcfs", arrival_s=arrival_s)
    assert served == [2, 1, 0, 2, 0, 1]


def test_fcfs_is_between_the_heads_of_another_order():
    # prompts all 10, so SJF goes by outputs: 5 ms apart, tier 0 has outputs 9 and 2, tier 1 has 5. When the first
    # ends (60 ms), the heads are the 2 of tier 0, which arrived last, and the 5 of tier 1: 5, 2, 9.
    arrival_s = [0.0, 0.005, 0.010, 0.015]
    served = tiers_served(
        [0, 0, 1, 0], "fcfs", arrival_s=arrival_s, outputs=[6, 9, 5, 2], order="sjf",
        estimator="oracle",
    )  # fmt: skip
    assert served == [0, 1, 0, 0]


def test_strict_priority_serves_the_least_urgent_last():
    # The first comes alone; then both of tier 0, both of tier 1 and what is left of tier 2.
    assert tiers_served([2, 1, 0, 2, 1, 0], "strict-priority") == [2, 0, 0, 1, 1, 2]


def test_queues_may_be_tenants():
    trace = Trace(np.zeros(8), np.full(8, 10), np.full(8, 5), tenant=Labels.of("aaaabbbb"))
    config = one_server(
        queue="weighted", queue_by="tenant", max_local_waiting=0, queue_params={"slots_0": 1}
    )
    finish = run(trace, config).state.requests["finish_ps"]
    # one slot for a, three for b
    assert np.argsort(finish).tolist() == [0, 4, 5, 6, 1, 7, 2, 3]


# Every queue policy.


def busy(n: int = 200) -> Trace:
    """Return requests of three tiers at a rate that makes them wait."""
    trace = generate("azure-conv", n, 40.0, 3)
    return Trace(trace.arrival_s, trace.prompt_tokens, trace.output_tokens, tier=np.arange(n) % 3)


@pytest.mark.parametrize("options", [{}, STALE], ids=["true", "stale"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", QUEUES)
def test_every_queue_policy_serves_everybody(name, engine, options):
    config = ClusterConfig(
        instances=2,
        profile=FLAT,
        engine=engine,
        queue=name,
        tiers=3,
        max_local_waiting=0,
        max_num_seqs=4,
        batch_size=4,
        max_num_batched_tokens=16_384,
        **options,
    )
    records = run(busy(), config).state.requests
    assert (records["status"] == FINISHED).all()


PULLED = {"instances": 2, "profile": FLAT, "tiers": 3, "max_num_seqs": 4, "max_local_waiting": 0}


@pytest.mark.parametrize("engine", ENGINES)
def test_fcfs_is_the_gateway_without_a_queue_policy(engine):
    config = {**PULLED, "engine": engine, "batch_size": 4, "max_num_batched_tokens": 16_384}
    logs = [run(busy(), ClusterConfig(**config, queue=queue)) for queue in (None, "fcfs")]
    np.testing.assert_array_equal(logs[0].state.requests, logs[1].state.requests)


@pytest.mark.parametrize("engine", ENGINES)
def test_strict_priority_is_the_priority_order_at_the_gateway(engine):
    config = {**PULLED, "engine": engine, "batch_size": 4, "max_num_batched_tokens": 16_384}
    config["order"] = "priority"
    logs = [
        run(busy(), ClusterConfig(**config, queue=queue)) for queue in (None, "strict-priority")
    ]
    np.testing.assert_array_equal(logs[0].state.requests, logs[1].state.requests)


def test_strict_priority_alone_is_the_priority_order_where_an_instance_has_nothing_to_order():
    # One seat: nobody waits there. With more, fcfs and priority differ in who is prefilled first and who is preempted.
    config = {**PULLED, "max_num_seqs": 1}
    by_order = run(busy(), ClusterConfig(**config, order="priority")).state.requests
    by_queue = run(busy(), ClusterConfig(**config, queue="strict-priority")).state.requests
    for name in ("instance", "admitted_ps", "first_token_ps", "finish_ps"):
        np.testing.assert_array_equal(by_queue[name], by_order[name])


@pytest.mark.parametrize("name", QUEUES)
def test_every_queue_policy_is_the_order_itself_over_a_single_queue(name):
    trace = busy()
    config = {"instances": 2, "profile": FLAT, "tiers": 3, "queue_by": "none", "max_num_seqs": 4}
    plain = run(trace, ClusterConfig(**config, max_local_waiting=0)).state.requests
    by_policy = run(trace, ClusterConfig(**config, max_local_waiting=0, queue=name))
    np.testing.assert_array_equal(by_policy.state.requests["finish_ps"], plain["finish_ps"])


@pytest.mark.parametrize("name", QUEUES)
def test_every_queue_policy_holds_more_queues_than_it_has_parameters(name):
    n = 60
    trace = Trace(np.zeros(n), np.full(n, 10), np.full(n, 3), tier=np.arange(n) % 12)
    config = one_server(tiers=12, queue=name, max_local_waiting=0)
    assert (run(trace, config).state.requests["status"] == FINISHED).all()
