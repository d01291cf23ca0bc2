"""What a reward's terms add up to over an episode is what the table of requests says, whatever happens to requests."""

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from flat_profile import FLAT
from random_arguments import IDS, plain_arguments

from servegym.envs.episode import TERMS
from servegym.simulator.config import ClusterConfig
from servegym.simulator.slo import Slo
from servegym.testing.playing import legal_action
from servegym.testing.terms import expected_terms
from servegym.traces import Trace

SLO = Slo(ttft_s=0.2, tpot_s=0.03)


def played(env_id: str, seed: int = 0, **arguments: Any) -> tuple[Any, list[dict[str, Any]], float]:
    """Return the environment at the end of an episode, the infos of its steps, and the sum of its rewards."""
    env = gymnasium.make(env_id, **arguments)
    env.reset(seed=seed)
    rng, infos, total, is_over = np.random.default_rng(seed), [], 0.0, False
    while not is_over:
        _, reward, terminated, truncated, info = env.step(legal_action(env, rng))
        infos.append(info)
        total += float(reward)
        is_over = terminated or truncated
    return env.unwrapped, infos, total


def assert_terms_are_those_of_the_table(env: Any, infos: list[dict[str, Any]], slo: Slo) -> None:
    """Assert that each term's sum is what its definition gives, row by row."""
    elapsed_s = math.fsum(info["elapsed_s"] for info in infos)
    for name, expected in expected_terms(env.result(), slo, elapsed_s).items():
        found = math.fsum(info["terms"][name] for info in infos)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9), name


TROUBLED = {
    "instances": 3,
    "max_instances": 4,
    "kv_blocks": 110,  # some fit nowhere
    "max_num_seqs": 8,
    "tiers": 3,
    "order": "priority",
    "admission": "queue-cap",
    "migration": "n-tier",
    "timeout_s": [0.4, 1.5, 6.0],
    "client_retries": 1,
    "retry_backoff_s": 0.3,
    "faults": [
        {"kind": "crash", "instance": 0, "at_s": 1.0, "duration_s": 1.0},
        {"kind": "crash", "instance": 1, "at_s": 2.5, "duration_s": 0.5},
        {"kind": "slow", "instance": 2, "at_s": 0.5, "duration_s": 3.0},
    ],
}


@pytest.mark.parametrize("on_failure", ["fail", "retry"])
@pytest.mark.parametrize("env_id", IDS)
def test_terms_add_up_through_everything_that_happens_to_requests(env_id, on_failure):
    """Tiers, a horizon that cuts, rejections, preemptions, cancellations with clients that ask again, crashes."""
    cluster = TROUBLED | {"on_failure": on_failure}
    arguments = plain_arguments(
        env_id,
        workload="burstgpt",
        episode_requests=120,
        rate_per_s=20.0,
        cluster=cluster,
        tier_mix=[0.3, 0.3, 0.4],
        horizon_s=4.0,
        slo={"ttft_s": SLO.ttft_s, "tpot_s": SLO.tpot_s},
    )
    happened: dict[str, int] = {}
    for seed in range(3):
        env, infos, _ = played(env_id, seed, **arguments)
        assert_terms_are_those_of_the_table(env, infos, SLO)
        table, control = env.result().requests, env.simulation.state.control[0]
        counts: Any = table["status"].value_counts().to_dict()
        counts |= {"preempted": int((table["preemptions"] > 0).sum())}
        counts |= {"asked again": int(control["n_client_retries"])}
        happened = {name: happened.get(name, 0) + int(n) for name, n in counts.items()}
    wanted = {"finished", "rejected", "cancelled", "unfinished", "preempted", "asked again"}
    wanted |= {"failed"} if on_failure == "fail" else set()
    assert {name for name in wanted if not happened[name]} == set()


@pytest.mark.parametrize("reward", TERMS)
@pytest.mark.parametrize("env_id", IDS)
def test_reward_is_the_term_that_was_asked_for(env_id, reward):
    arguments = plain_arguments(env_id, reward=reward, episode_requests=20)
    _, infos, total = played(env_id, **arguments)
    assert total == pytest.approx(math.fsum(info["terms"][reward] for info in infos), rel=1e-12)


@pytest.mark.parametrize("env_id", IDS)
def test_undiscounted_latency_is_total_latency(env_id):
    """The default reward but for Admission, whose own is slo."""
    env, infos, total = played(env_id, **plain_arguments(env_id, horizon_s=3.0))
    expected = -env.result().total_latency_s
    found = math.fsum(info["terms"]["latency"] for info in infos)
    assert found == pytest.approx(expected, rel=1e-9)
    if env_id != "servegym/Admission-v0":
        assert total == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("env_id", IDS)
def test_latency_paid_by_every_decision_is_that_of_the_result_there(env_id):
    """Not only at the end: what has been paid up to a decision is the total latency of the run cut there."""
    env = gymnasium.make(env_id, **plain_arguments(env_id, slo={"ttft_s": 1.0, "tpot_s": 0.1}))
    env.reset(seed=2)
    inner: Any = env.unwrapped
    rng, paid, is_over, n = np.random.default_rng(0), 0.0, False, 0
    while not is_over:
        *_, terminated, truncated, info = env.step(legal_action(env, rng))
        paid += info["terms"]["latency"]
        is_over, n = terminated or truncated, n + 1
        if n % 3 == 0 or is_over:
            assert paid == pytest.approx(-inner.result().total_latency_s, rel=1e-9, abs=1e-9)


# Worked by hand: FLAT takes 10 ms an iteration; one seat.


def test_terms_of_two_requests_by_hand():
    """r0 of tier 0 arrives at 0, r1 of tier 1 at 5 ms, two tokens each, on one instance with one seat.

    r0: first token 10 ms, end 20 ms. r1 starts then: first token 30 ms, end 40 ms; it has waited from 5 ms.
    Step 1 (about r0) ends at 5 ms, when r1 is asked about: r0 has accrued 5 ms of latency and of waiting.
    Step 2 runs to the end at 40 ms: latency 15 + 35 ms, weighted 15 + 35/2, waiting 5 + 25 ms.
    SLO: TTFT 20 ms (40 for tier 1), TPOT 15 ms: both are met, which pays 1 + 1/2 at the end.
    """
    trace = Trace([0.0, 0.005], [16, 16], [2, 2], tier=[0, 1])
    config = ClusterConfig(instances=1, profile=FLAT, max_num_seqs=1, tiers=2)
    env = gymnasium.make(
        "servegym/Dispatch-v0", workload=trace, cluster=config, slo=Slo(ttft_s=0.02, tpot_s=0.015)
    )
    env.reset(seed=0)
    *_, terminated, truncated, first = env.step(0)
    assert (terminated, truncated) == (False, False)
    assert first["elapsed_s"] == pytest.approx(0.005)
    assert first["terms"] == pytest.approx(
        {"latency": -0.005, "weighted_latency": -0.005, "slo": 0.0, "ttft": -0.005}
    )
    *_, terminated, truncated, second = env.step(0)
    assert (terminated, truncated) == (True, False)
    assert second["elapsed_s"] == pytest.approx(0.035)
    assert second["terms"] == pytest.approx(
        {"latency": -0.050, "weighted_latency": -0.0325, "slo": 1.5, "ttft": -0.030}
    )


def test_slo_of_a_request_that_is_late_when_the_horizon_cuts_is_missed():
    """r0 runs from 0 to 1 s (100 tokens), r1 waits since 5 ms, r2 since 45 ms; TTFT 30 ms; the horizon is 50 ms.

    r0 is not late: its first token came at 10 ms, and its other 99 may take 20 ms each. r1 is: 45 ms without a token.
    r2, 5 ms old, is open. Sum: -1.
    """
    trace = Trace([0.0, 0.005, 0.045], [16] * 3, [100] * 3)
    config = ClusterConfig(instances=1, profile=FLAT, max_num_seqs=1)
    env, infos, _ = played(
        "servegym/Dispatch-v0",
        workload=trace,
        cluster=config,
        horizon_s=0.05,
        slo=Slo(ttft_s=0.03, tpot_s=0.02),
    )
    assert math.fsum(info["terms"]["slo"] for info in infos) == -1.0
    assert_terms_are_those_of_the_table(env, infos, env.options.slo)
