"""Odd settings, each of which has broken some simulator: they run, and keep every promise of check_env."""

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from flat_profile import FLAT
from random_arguments import IDS, plain_arguments

from servegym.envs.dispatch import DispatchEnv
from servegym.simulator.config import ClusterConfig
from servegym.simulator.profiles import profiles
from servegym.testing import check_env
from servegym.testing.playing import legal_action, play
from servegym.traces import Trace

CRASH_AT_0 = [{"kind": "crash", "instance": i, "at_s": 0.0, "duration_s": 0.7} for i in (0, 1)]
ODD: dict[str, dict[str, Any]] = {
    "all instances down at 0": {"cluster": {"instances": 2, "faults": CRASH_AT_0}},
    "absent ones, and those there crash at 0": {
        "cluster": {"instances": 2, "max_instances": 5, "faults": CRASH_AT_0}
    },
    "every absent one fails, too": {
        "cluster": {
            "instances": 1,
            "max_instances": 3,
            "faults": [
                {"kind": kind, "instance": i, "at_s": 0.0, "duration_s": 2.0}
                for i in range(3)
                for kind in ("crash", "slow", "metrics", "link")
            ],
        }
    },
    "clients give up within an iteration": {
        "cluster": {"timeout_s": 0.002, "client_retries": 2, "retry_backoff_s": 0.001}
    },
    "clients give up at once, pull": {
        "cluster": {"timeout_s": 1e-6, "client_retries": 3, "max_local_waiting": 0}
    },
    "one instance": {"cluster": {"instances": 1}},
    "64 instances": {"cluster": {"instances": 64}, "rate_per_s": 60.0},
    "one seat": {"cluster": {"max_num_seqs": 1}},
    "8 tiers": {"cluster": {"tiers": 8, "order": "priority"}, "tier_mix": [1 / 8] * 8},
    "8 tiers that nobody uses": {"cluster": {"tiers": 8}},
    "one queue for 3 tiers": {
        "cluster": {"tiers": 3, "queue_by": "none"},
        "tier_mix": [0.2, 0.3, 0.5],
    },
    "a queue a tenant": {
        "workload": "driftsched-tokens",
        "cluster": {"queue_by": "tenant", "max_local_waiting": 0},
    },
    "a queue a tenant, and none named": {"cluster": {"queue_by": "tenant"}},
    "nothing fits": {"cluster": {"kv_blocks": 1}},
    "hardly anything fits": {"cluster": {"kv_blocks": 40}},
    "two requests": {"episode_requests": 2},
    "two requests, far apart": {"episode_requests": 2, "rate_per_s": 0.002, "horizon_s": 3.0},
    "a horizon before anything": {"horizon_s": 1e-9},
    "no horizon": {"horizon_s": None},
    "one feature": {
        "features": {"instances": [], "queues": [], "request": [], "cluster": ["gateway"]}
    },
    "no instances in sight": {"features": {"instances": []}, "mask_in_observation": True},
    "stale and many routers": {
        "cluster": {"metrics_interval_s": 5.0, "routers": 16, "snapshot_interval_s": 3.0}
    },
    "static": {"cluster": {"engine": "static", "batch_size": 1, "batch_wait_s": 0.0}},
    "static, never alone": {"cluster": {"engine": "static", "batch_size": 64, "batch_wait_s": 2.0}},
    "no admission watermark, tight": {
        "cluster": {"engine": "sarathi", "watermark": 0.0, "kv_blocks": 330, "max_num_seqs": 8}
    },
    "first chunk only": {
        "cluster": {"reserve_full_prompt": False, "kv_blocks": 330, "max_num_batched_tokens": 256}
    },
    "a mixed fleet": {
        "cluster": {
            "instances": 3,
            "profile": ["a100_sxm/Llama-3.1-8B/tp1", "l40s/Llama-3.1-8B/tp1"],
        }
    },
    "penalty free": {"cluster": {"kv_blocks": 60, "reject_penalty_s": 0.0}},
    "what-if behind it": {"cluster": {"kv_blocks": 700, "remaining": "residual"}},
    "holds for long": {"cluster": {"hold_timer_s": 1000.0, "max_local_waiting": 1, "instances": 1}},
    "asks each ms": {"cluster": {"hold_timer_s": 0.001, "max_num_seqs": 2, "instances": 1}},
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_settings_keep_every_promise(odd):
    """Of two ids, by turns; all of them when slow tests are asked for."""
    k = list(ODD).index(odd)
    for env_id in (IDS[k % 7], IDS[(k + 3) % 7]):
        check_odd(env_id, odd)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("odd", ODD)
def test_odd_settings_keep_every_promise_in_every_environment(odd, env_id):
    check_odd(env_id, odd)


def check_odd(env_id: str, odd: str) -> None:
    arguments = plain_arguments(env_id, episode_requests=16) | ODD[odd]
    check_env(env_id, seeds=[0], n_steps=250, **arguments)


@pytest.mark.parametrize("env_id", IDS)
def test_horizon_at_an_arrival_does_not_offer_it(env_id):
    """Arrivals at the horizon are not offered, and nobody is asked about them."""
    trace = Trace([0.0, 0.01, 0.02], [16] * 3, [2] * 3)
    arguments = plain_arguments(env_id, workload=trace, cluster=ClusterConfig(profile=FLAT))
    check_env(env_id, seeds=[0], **arguments | {"rate_per_s": None, "horizon_s": 0.02})
    env: Any = gymnasium.make(env_id, **arguments | {"rate_per_s": None, "horizon_s": 0.02})
    play(env, 0, 50)
    assert len(env.unwrapped.result().records) == 2


def test_request_that_fits_only_an_absent_instance_waits_for_it():
    """A mixed fleet: r1 takes 1,251 blocks, FLAT has 1,000, LARGE 2,000 but was drained at 0.

    The agent adds it again at 10 s; it is ready 5 s later.
    """
    large = replace(profiles()[FLAT], model="large", kv_blocks_default=2_000)
    profiles()[large.name] = large
    arguments: dict[str, Any] = {
        "workload": Trace([0.0, 2.5], [16, 20_000], [2, 2]),
        "cluster": ClusterConfig(instances=2, profile=(FLAT, large.name)),
    }
    check_env("servegym/Scaling-v0", seeds=[0], horizon_s=5.0, **arguments)
    env: Any = gymnasium.make("servegym/Scaling-v0", horizon_s=30.0, **arguments)
    env.reset(seed=0)
    drain, keep, add = 0, 1, 2
    terminated, actions = False, [drain, *[keep] * 9, add]
    while not terminated:
        *_, terminated, truncated, _ = env.step(actions.pop(0) if actions else keep)
        assert not truncated
    requests = env.unwrapped.simulation.state.requests
    assert requests["admitted_ps"].tolist() == [0, 15 * 10**12]
    assert requests["instance"].tolist() == [0, 1]


def test_many_requests_at_one_instant_are_asked_about_one_by_one():
    """100 arrivals at 0: 100 decisions, none of which takes time."""
    trace = Trace(np.zeros(100), [16] * 100, [2] * 100)
    env = gymnasium.make(
        "servegym/Dispatch-v0", workload=trace, cluster=ClusterConfig(profile=FLAT)
    )
    env.reset(seed=0)
    rng, elapsed, terminated = np.random.default_rng(0), [], False
    for _ in range(100):
        *_, terminated, _, info = env.step(legal_action(env, rng))
        elapsed.append(info["elapsed_s"])
    assert terminated
    assert elapsed[:-1] == [0.0] * 99
    assert elapsed[-1] > 0.0


# What is no set of arguments.


@pytest.mark.parametrize(
    ("env_id", "arguments", "message"),
    [
        (IDS[0], {"lode": 1.0}, "unknown argument 'lode'; did you mean 'load'"),
        (IDS[0], {"control_interval_s": 1.0}, "control_interval_s = 1.0; dispatch has none"),
        (IDS[1], {"fallback": "least-kv"}, "fallback = 'least-kv'; admission has none"),
        (IDS[0], {"fallback": "least-kw"}, "least-kw"),
        (IDS[0], {"fallback": "agent"}, "fallback = 'agent'; must be a policy that acts for"),
        (IDS[0], {"reward": "latencies"}, "unknown reward 'latencies'; did you mean 'latency'"),
        (IDS[0], {"system": "n-teir"}, "n-teir"),
        (IDS[0], {"horizon_s": 0.0}, "horizon_s = 0.0; must be finite and > 0, or None"),
        (IDS[0], {"horizon_s": float("nan")}, "horizon_s = nan"),
        (IDS[0], {"horizon_s": "600"}, "horizon_s = '600'; must be a finite number"),
        (IDS[0], {"horizon_s": 1e8}, "horizon_s = 100000000.0; must be <= 9200000 s"),
        (IDS[0], {"features": {"instance": []}}, "unknown part of features 'instance'"),
        (IDS[0], {"features": {"cluster": ["gatewya"]}}, "did you mean 'gateway'"),
        (IDS[0], {"features": {"cluster": "gateway"}}, "must be a list of names"),
        (IDS[0], {"features": ["gateway"]}, "must be {part: names}"),
        (IDS[0], {"workload": "missing.csv"}, "there is no such file"),
        (IDS[0], {"features": {"cluster": ["gateway"] * 2}}, "names one twice"),
        (
            IDS[0],
            {"features": {p: [] for p in ("cluster", "instances", "queues", "request")}},
            "all parts are empty",
        ),
        (IDS[0], {"flatten": True, "mask_in_observation": True}, "exclude each other"),
        (IDS[0], {"cluster": {"scaling": "agent"}}, "scaling = 'agent'; dispatch does not ask"),
        (IDS[5], {"system": "agent"}, "unknown system 'agent'"),
        (IDS[0], {"slo": {"ttft_s": -1.0}}, "ttft_s = -1.0"),
        (IDS[0], {"slo": {"ttft": 1.0}}, "unknown limit in slo 'ttft'; did you mean 'ttft_s'"),
        (IDS[0], {"cluster": {"instances": 0}}, "instances = 0"),
        (IDS[0], {"cluster": {"instanses": 3}}, "instanses"),
        (IDS[0], {"episode_requests": 1}, "episode_requests = 1"),
        (IDS[0], {"load": -0.5}, "load = -0.5"),
        (IDS[4], {"moves_per_tick": 0}, "moves_per_tick = 0"),
        (IDS[4], {"moves_per_tick": True}, "moves_per_tick = True"),
        (IDS[4], {"moves_per_tick": 10**30}, "must be a whole number in 1 .. 2147483647"),
        (IDS[4], {"rule": "n-teir"}, "unknown rule 'n-teir'"),
        (IDS[4], {"control_interval_s": 0.0}, "control_interval_s = 0.0"),
        (IDS[5], {"control_interval_s": -1.0}, "control_interval_s = -1.0"),
        (IDS[6], {"control_interval_s": 0.0, "system": "n-tier"}, "control_interval_s = 0.0"),
        (
            IDS[6],
            {"control_interval_s": float("nan"), "system": "n-tier"},
            "control_interval_s = nan",
        ),
        (IDS[6], {"control_interval_s": 1e300}, "control_interval_s = 1e+300; must be <= 9200000"),
        (IDS[6], {"system": "least-requests"}, "no part of it has headroom"),
        (IDS[6], {"system": "llumnix"}, "no part of it has headroom"),  # the binary reserve
    ],
)
def test_bad_argument_is_named_when_the_environment_is_made(env_id, arguments, message):
    with pytest.raises(ValueError) as error:
        gymnasium.make(env_id, **arguments)
    assert message in str(error.value)


def test_oracle_is_one_under_a_system_with_an_estimator_of_its_own():
    env: Any = gymnasium.make(IDS[1], system="driftsched-fifo", oracle=True, episode_requests=9)
    play(env, 0, 100)
    table = env.unwrapped.result().requests
    assert (table["predicted_tokens"] == table["output_tokens"]).all()


def test_unknown_render_mode_is_named():
    """By the class: gymnasium.make warns of it first."""
    with pytest.raises(
        ValueError, match="render_mode = 'rgb'; must be one of ansi, rgb_array, human"
    ):
        DispatchEnv(render_mode="rgb")


def test_result_before_the_first_reset_asks_for_one():
    env: Any = gymnasium.make(IDS[0]).unwrapped
    for look in (env.result, env.snapshot, lambda: env.trace, lambda: env.episode_seed):
        with pytest.raises(gymnasium.error.ResetNeeded):
            look()
