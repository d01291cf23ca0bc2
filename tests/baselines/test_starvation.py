"""Who waits for whom: cases 3 and 17, of orders and queues.

FLAT takes 10 ms an iteration and a block is 16 tokens; one server of one seat takes 10 ms a token.
"""

import numpy as np
import pytest
from flat_profile import FLAT, one_server

from servegym.baselines.simulate import simulate
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.traces import Trace

ENGINES = ("vllm-v1", "vllm-v0", "sarathi", "static")
MS = 10**9
LOG = ["instance", "admitted_ps", "first_token_ps", "finish_ps", "preemptions", "status"]


def run(trace: Trace, config: ClusterConfig) -> np.ndarray:
    """Return the request records of a whole run."""
    simulation = Simulation(trace, config, find_policy("dispatch", "round-robin"))
    simulation.run()
    return simulation.state.requests


def starved(**options) -> ClusterConfig:
    """Return one FLAT instance of 12 blocks."""
    return ClusterConfig(**({"instances": 1, "profile": FLAT, "kv_blocks": 12} | options))


def random_requests(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return arrivals, prompts and outputs of n requests that starve 12 blocks."""
    random = np.random.default_rng(seed)
    arrivals = np.sort(random.uniform(0, 1, n))
    return arrivals, random.integers(1, 60, n), random.integers(1, 40, n)


def flood(victim_tokens: int = 1, victim_tier: int = 0) -> Trace:
    """Return one request at 1 ms among 200 of one token and 10 ms each, one each 10 ms: the server is never free."""
    arrival_s = np.sort(np.append(np.arange(200) * 0.010, 0.001))
    prompt, tiers = np.full(201, 5), np.zeros(201, int)
    prompt[1], tiers[1] = victim_tokens, victim_tier
    return Trace(arrival_s, prompt, np.ones(201), tier=tiers)


# CASE 3


@pytest.mark.parametrize(
    ("options", "small_starts_ms", "big_starts_ms"),
    [
        ({}, 290, 290),
        ({"bypass_blocked": True}, 10, 290),
        ({"order": "sjf"}, 10, 290),
        ({"order": "sjf-aging"}, 10, 290),
    ],
    ids=["fcfs", "bypass", "sjf", "sjf-aging"],
)
def test_case_03_small_request_waits_behind_a_blocked_big_one_unless_the_order_bypasses(
    options, small_starts_ms, big_starts_ms
):
    """vLLM users took head-of-line blocking for a hang: FCFS waits, and who may pass must be said."""
    # 10 blocks. 0 takes 7 of them, 8 in the end, up to 290 ms; 1 needs 5, 2 needs 1.
    trace = Trace([0.0, 0.001, 0.002], [100, 80, 15], [29, 2, 2])
    records = run(trace, starved(kv_blocks=10, **options))
    assert records["admitted_ps"][1] == big_starts_ms * MS
    assert records["admitted_ps"][2] == small_starts_ms * MS


def test_case_03_a_big_requests_wait_is_bounded_under_sjf_with_aging():
    """An order that lets small requests pass must not let them pass for ever."""
    # small ones of 21 tokens each 5 ms for 2 s on 10 blocks; the big one, 133 tokens, came second. At 1,000 tokens/s
    # those go first that come within (133 - 21) / 1000 = 112 ms, not one that comes later.
    arrival_s = np.sort(np.append(np.arange(400) * 0.005, 0.001))
    prompt = np.full(401, 16)
    prompt[1] = 128
    trace = Trace(arrival_s, prompt, np.full(401, 5))
    config = {"estimator": "oracle", "kv_blocks": 10, "max_num_seqs": 8}
    aged = run(trace, starved(**config, order="sjf-aging", order_params={"rate": 1000.0}))
    ahead = aged["admitted_ps"] < aged["admitted_ps"][1]
    assert trace.arrival_s[ahead].max() <= 0.001 + 0.112 + 1e-9
    plain = run(trace, starved(**config, order="sjf"))
    assert (plain["admitted_ps"] < plain["admitted_ps"][1]).sum() == 400


# CASE 17


@pytest.mark.parametrize("local_limit", [None, 0], ids=["push", "pull"])
@pytest.mark.parametrize("engine", ENGINES)
def test_case_17_swapping_tiers_swaps_the_classes_results(engine, local_limit):
    """A priority that leaks, by index or by queue, favours a class beyond its tier."""
    arrivals, prompt, output = (np.repeat(column, 2) for column in random_requests(40, 0))
    finish = []
    for tiers in ([0, 1], [1, 0]):
        trace = Trace(arrivals, prompt, output, tier=np.tile(tiers, 40))
        config = starved(engine=engine, order="priority", tiers=2, max_local_waiting=local_limit)
        finish.append(run(trace, config)["finish_ps"].reshape(40, 2))
    np.testing.assert_array_equal(finish[0], finish[1][:, ::-1])
    assert (finish[0][:, 0] <= finish[0][:, 1]).all() and (finish[0][:, 0] != finish[0][:, 1]).any()


@pytest.mark.parametrize("local_limit", [None, 0], ids=["push", "pull"])
@pytest.mark.parametrize("order", ["priority", "aging", "edf"])
@pytest.mark.parametrize("engine", ENGINES)
def test_case_17_constant_tier_equals_fifo_exactly(engine, order, local_limit):
    """Orders by tier must not invent differences where there is none."""
    arrivals, prompt, output = random_requests(60, 1)
    trace = Trace(arrivals, prompt, output, tier=np.ones(60))
    config = {"engine": engine, "tiers": 3, "max_local_waiting": local_limit, "kv_blocks": 100}
    config |= {"max_num_seqs": 4, "batch_size": 4}
    fifo = run(trace, starved(**config))
    np.testing.assert_array_equal(run(trace, starved(**config, order=order))[LOG], fifo[LOG])


@pytest.mark.parametrize("engine", ["vllm-v1", "vllm-v0", "sarathi"])
@pytest.mark.parametrize("order", ["priority", "aging", "edf", "sjf-aging"])
def test_case_17_equal_priorities_never_evict_each_other_in_turn(engine, order):
    """Two equals that evict each other make no progress; the earlier one must keep its place."""
    # 20 + 40 - 1 = 59 tokens each: 4 blocks in the end, and there are 6. (vllm-v0 and sarathi let the later one try
    # again and again.)
    trace = Trace(np.zeros(2), np.full(2, 20), np.full(2, 40), tier=[1, 1])
    records = run(trace, starved(engine=engine, order=order, tiers=2, kv_blocks=6, watermark=0.0))
    assert records["preemptions"][0] == 0 < records["preemptions"][1]
    assert records["finish_ps"][0] < records["finish_ps"][1]
    if engine == "vllm-v1":
        assert records["finish_ps"][0] == 400 * MS and records["preemptions"][1] == 1


def test_case_17_starvation_under_strict_priority_shows_as_max_wait():
    """Means hide the one request that never gets its turn."""
    waits = {}
    for order in ("fcfs", "priority", "aging"):
        params = {"rate": 2.0} if order == "aging" else {}
        config = one_server(order=order, order_params=params, tiers=2)
        result = simulate(flood(victim_tier=1), config, "round-robin")
        waits[order] = result.summary()["max_wait_s"]
    # 201 requests, 10 ms each: under priority it is the last, at 2.00 s. Under fcfs it is the second, at 10 ms, and all
    # others then wait 10 ms; aging: it counts .5 s late, so those that come up to .501 s go first
    assert waits["priority"] == pytest.approx(2.0 - 0.001)
    assert waits["fcfs"] == pytest.approx(0.010)
    assert waits["aging"] == pytest.approx(0.51 - 0.001)


def test_case_17_aging_serves_within_its_bound():
    """Aging is worth its name only if nobody waits for those who come later than its bound."""
    # rate 10 a second: .1 s a tier. Twice as many come as can be served, of three tiers in turn.
    trace = Trace(np.arange(300) * 0.005, np.full(300, 5), np.ones(300), tier=np.arange(300) % 3)
    records = run(trace, one_server(order="aging", order_params={"rate": 10.0}, tiers=3))
    strict = run(trace, one_server(order="priority", tiers=3))

    def latest_ahead_s(log: np.ndarray, tier: int) -> float:
        """Return by how much the latest of tier 0 that went before one of that tier came after it."""
        urgent = log[log["tier"] == 0]
        return max(
            (urgent["arrival_ps"][urgent["admitted_ps"] < r["admitted_ps"]].max() - r["arrival_ps"])
            / 1e12
            for r in log[log["tier"] == tier]
        )

    assert 0.08 < latest_ahead_s(records, 1) <= 0.1 + 1e-6
    assert 0.18 < latest_ahead_s(records, 2) <= 0.2 + 1e-6
    assert latest_ahead_s(strict, 2) > 1.0


def test_case_17_sjf_starves_a_long_request_and_sjf_with_aging_does_not():
    """The shortest-first gain is paid by the long; users must see it, and have the remedy."""
    trace = flood(victim_tokens=50)
    assert run(trace, one_server(order="sjf"))["admitted_ps"][1] == 2000 * MS
    # 45 tokens more at 100 tokens/s: those that come within .45 s go first, the last of them at .45 s
    aged = run(trace, one_server(order="sjf-aging"))["admitted_ps"][1]
    assert aged == 460 * MS
