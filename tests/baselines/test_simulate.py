"""simulate(): options, load and rate, seeds."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flat_profile import FLAT, one_server

from servegym.baselines.saturation import saturation_rate
from servegym.baselines.simulate import ReplayError, replay, simulate
from servegym.simulator.config import ClusterConfig
from servegym.traces import Trace, generate


@pytest.fixture(scope="module")
def trace() -> Trace:
    return generate("azure-conv", 400, 20.0, 0)


def test_options_override_the_config_and_are_validated():
    config = one_server(instances=3)
    result = simulate(Trace([0.0], [20], [2]), config, "round-robin", instances=2)
    assert (result.config.instances, result.config.max_num_seqs) == (2, 1)
    assert simulate(Trace([0.0], [20], [2]), config).config is config
    with pytest.raises(ValueError, match="instances = 0"):
        simulate(Trace([0.0], [20], [2]), config, instances=0)
    with pytest.raises(ValueError, match="unknown option 'instance'; did you mean 'instances'"):
        simulate(Trace([0.0], [20], [2]), instance=2)


def test_the_default_system_is_least_requests(trace: Trace):
    default = simulate(trace, instances=2)
    assert (default.system, default.config.instances) == ("least-requests", 2)
    pd.testing.assert_frame_equal(
        default.requests, simulate(trace, instances=2, system="least-requests").requests
    )


def test_parameters_of_the_system_reach_the_policy(trace: Trace):
    # power of one is random placement; of all instances it is the shortest queue
    one, all_four = (simulate(trace, system=f"power-of-two:d={d}", load=0.9) for d in (1, 4))
    assert all_four.summary()["ttft_s"]["mean"] < one.summary()["ttft_s"]["mean"]
    assert all_four.params == {"d": 4.0}


def test_same_seed_same_result_and_another_seed_another(trace: Trace):
    first, same, other = (simulate(trace, system="random", seed=s) for s in (1, 1, 2))
    pd.testing.assert_frame_equal(first.requests, same.requests)
    assert first.requests["instance"].tolist() != other.requests["instance"].tolist()
    assert first.summary()["seeds"] == [1]


def test_case_22_only_the_policy_changes(trace: Trace):
    """Paired differences need common random numbers: equal arrivals and lengths under any policy."""
    first, second = (simulate(trace, system=name, seed=5) for name in ("random", "least-kv"))
    hashes = {result.summary()["workload_hash"] for result in (first, second)}
    assert hashes == {trace.workload_hash}
    for name in ("arrival_s", "prompt_tokens", "output_tokens", "predicted_tokens"):
        assert first.requests[name].tolist() == second.requests[name].tolist()
    assert first.requests["instance"].tolist() != second.requests["instance"].tolist()


def test_load_scales_the_mean_rate_to_a_multiple_of_saturation(trace: Trace):
    config = ClusterConfig(instances=2)
    summary = simulate(trace, config, load=0.5).summary()
    assert summary["load"] == 0.5
    assert summary["rate_per_s"] == pytest.approx(0.5 * saturation_rate(trace, config))


def test_rate_scales_the_mean_rate_and_neither_keeps_the_times(trace: Trace):
    assert simulate(trace, rate_per_s=3.0).summary()["rate_per_s"] == pytest.approx(3.0)
    assert simulate(trace).trace is trace
    assert simulate(trace).summary()["load"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"load": 0.0}, "load = 0.0; must be finite and > 0"),
        ({"load": float("nan")}, "load = nan"),
        ({"rate_per_s": -1.0}, "rate_per_s = -1.0; must be finite and > 0"),
        ({"load": 1.0, "rate_per_s": 1.0}, "must give one of them"),
        ({"seed": -1}, "seed = -1"),
        ({"horizon_s": -1.0}, "horizon_s = -1.0"),
    ],
)
def test_bad_value_is_named(trace: Trace, options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        simulate(trace, **options)


def test_trace_without_a_rate_cannot_be_scaled():
    for load, rate_per_s in ((0.5, None), (None, 2.0)):
        with pytest.raises(ValueError, match="1 requests over 0.0 s has no rate"):
            simulate(Trace([3.0], [20], [2]), profile=FLAT, load=load, rate_per_s=rate_per_s)


def test_a_scenario_sets_its_fields_and_options_override_them():
    trace = generate("azure-conv", n=20, rate_per_s=5.0, seed=0)
    tight = simulate(trace, scenario="tight", max_num_seqs=64).config
    assert (tight.kv_blocks, tight.max_num_seqs) == (6000, 64)
    with pytest.raises(ValueError, match="unknown scenario 'tigth'; did you mean 'tight'"):
        simulate(trace, scenario="tigth")


def test_no_paging_reserves_max_tokens_for_every_request():
    # 1,000 blocks of 16 tokens are 7 reservations of 2,048: with pages all 20 would run at once
    trace = Trace(np.zeros(20), np.full(20, 10), np.full(20, 5))
    paged, reserved = (
        simulate(trace, scenario=name, profile=FLAT, instances=1).requests
        for name in ("default", "no-paging")
    )
    assert paged["admitted_s"].tolist() == [0.0] * 20
    # each seven take 5 iterations of 10 ms
    assert reserved["admitted_s"].tolist() == [0.0] * 7 + [0.05] * 7 + [0.1] * 6


def test_a_replay_that_comes_out_differently_is_an_error(tmp_path):
    """A policy that was edited since would otherwise pass for the saved run."""
    trace = generate("azure-conv", n=50, rate_per_s=20.0, seed=0)
    simulate(trace, system="random", seed=1).save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"seed": 2}))
    with pytest.raises(ReplayError, match="a second run of random differs from the one saved"):
        replay(tmp_path)


def test_a_replay_on_a_changed_profile_is_an_error(tmp_path):
    simulate(generate("azure-conv", n=5, rate_per_s=20.0, seed=0)).save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["profiles"][0]["c0_ms"] *= 2
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="is not what it was when least-requests ran"):
        replay(tmp_path)
