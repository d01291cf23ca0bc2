"""Load 1.0: rates that can be worked out, additivity over a mixed fleet, and the cache.

A FLAT iteration takes 10 ms, a SLOW one 20 ms.
"""

import threading

import numpy as np
import pytest
from flat_profile import FLAT, SLOW, one_server

from servegym.baselines import saturation
from servegym.baselines.saturation import (
    draw_lengths,
    measure_rate,
    saturation_rate,
    scale_to_load,
)
from servegym.simulator.config import ClusterConfig
from servegym.traces import Trace, workload


def equal_requests(prompt: int, output: int) -> Trace:
    """100 requests, all alike, one a second."""
    return Trace(np.arange(100.0), np.full(100, prompt), np.full(100, output))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, beside which the compiled engine stays where it is."""
    monkeypatch.setattr(saturation, "cache_root", lambda: tmp_path)
    return tmp_path / "saturation"


@pytest.mark.parametrize(
    ("seats", "output", "rate_per_s"),
    [
        (1, 1, 100.0),  # one after another, one iteration of 10 ms each
        (1, 4, 25.0),  # four iterations each
        (4, 1, 400.0),  # four in every iteration
    ],
)
def test_rate_of_equal_requests(seats: int, output: int, rate_per_s: float):
    config = one_server(max_num_seqs=seats)
    assert saturation_rate(equal_requests(16, output), config) == pytest.approx(rate_per_s)


def test_rate_of_static_batches():
    # Batches of 8 full at once: a prefill iteration and one decode, 20 ms
    config = one_server(engine="static", batch_size=8)
    assert saturation_rate(equal_requests(16, 2), config) == pytest.approx(8 / 0.020)


def test_one_batch_of_all_falls_back_to_the_whole_time():
    # All 20,000 in one batch: nothing lies between two percentiles of one instant
    config = one_server(engine="static", batch_size=20_000, kv_blocks=20_000)
    assert saturation_rate(equal_requests(16, 1), config) == pytest.approx(20_000 / 0.010)


def test_fleet_is_the_sum_of_its_instances():
    # Instances take profiles in turn: FLAT, SLOW, FLAT
    config = one_server(instances=3, profile=(FLAT, SLOW))
    assert saturation_rate(equal_requests(16, 1), config) == pytest.approx(2 * 100 + 50)


def test_what_is_not_the_engine_does_not_matter():
    trace = equal_requests(16, 1)
    config = one_server(routers=4, metrics_interval_s=1.0, order="sjf", tiers=3)
    assert saturation_rate(trace, config) == saturation_rate(trace, one_server())


def test_requests_that_fit_nowhere_are_not_counted_and_none_at_all_is_an_error():
    mixed = Trace([0.0, 1.0], [16, 10_000], [1, 1])
    config = one_server(kv_blocks=10)
    assert saturation_rate(mixed, config) == pytest.approx(100.0)
    with pytest.raises(ValueError, match="no request fits an instance of test/flat/tp1"):
        saturation_rate(equal_requests(10_000, 1), config)
    with pytest.raises(ValueError, match="empty trace"):
        saturation_rate(Trace([], [], []), config)


def test_drawn_lengths_are_pairs_of_the_trace_and_the_same_every_time():
    trace = Trace(np.arange(3.0), [10, 20, 30], [1, 2, 3])
    prompts, outputs = draw_lengths(trace)
    assert len(prompts) == 20_000
    np.testing.assert_array_equal(prompts, 10 * outputs)
    assert set(outputs.tolist()) == {1, 2, 3}
    np.testing.assert_array_equal(draw_lengths(trace)[0], prompts)
    model = workload("azure-conv")
    assert draw_lengths(model)[0].mean() == pytest.approx(model.mean_prompt_tokens, rel=0.03)


def test_arrivals_of_the_trace_do_not_matter():
    trace = equal_requests(16, 3)
    assert saturation_rate(trace, one_server()) == saturation_rate(
        trace.scale_rate(7.0), one_server()
    )


def test_overload_is_served_at_the_saturation_rate():
    """What load 1.0 means: a fleet that never runs out of work finishes at that rate."""
    model, config = workload("azure-conv"), ClusterConfig(instances=1)
    rate = saturation_rate(model, config)
    other = measure_rate(model.draw_lengths(20_000, seed=1), config)
    assert other == pytest.approx(rate, rel=0.03)


def test_rate_is_read_back_from_the_disk(cache, monkeypatch):
    trace, config = equal_requests(16, 1), one_server(profile=(FLAT, SLOW), instances=2)
    rate = saturation_rate(trace, config)
    assert len(list(cache.iterdir())) == 2  # one file a profile, no temporary left
    monkeypatch.setattr(saturation, "measure_rate", None)
    assert saturation_rate(trace, config) == rate


@pytest.mark.parametrize(
    "changes",
    [{"max_num_seqs": 2}, {"host_overhead_ms": 1.0}, {"profile": SLOW}, {"engine": "sarathi"}],
)
def test_another_engine_is_measured_anew(cache, changes: dict):
    trace = equal_requests(16, 2)
    saturation_rate(trace, one_server())
    saturation_rate(trace, one_server(**changes))
    saturation_rate(equal_requests(16, 3), one_server())
    assert len(list(cache.iterdir())) == 3


@pytest.mark.parametrize("text", ["", "{", "[]", '{"rate_per_s": "fast"}'])
def test_broken_cache_file_is_replaced(cache, text: str):
    trace = equal_requests(16, 1)
    saturation_rate(trace, one_server())
    (path,) = cache.iterdir()
    path.write_text(text)
    assert saturation_rate(trace, one_server()) == pytest.approx(100.0)
    assert "100" in path.read_text()


def test_concurrent_writers_leave_one_whole_file(cache):
    trace, found = equal_requests(16, 1), []
    barrier = threading.Barrier(4)

    def work():
        barrier.wait()
        found.append(saturation_rate(trace, one_server()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 4
    assert len(list(cache.iterdir())) == 1


def test_scaling_to_a_load_changes_arrivals_only():
    trace = equal_requests(16, 1)
    scaled = scale_to_load(trace, one_server(), 0.8)
    assert scaled.mean_rate_per_s == pytest.approx(80.0)
    np.testing.assert_allclose(np.diff(scaled.arrival_s), 1 / 80.0)
    np.testing.assert_array_equal(scaled.prompt_tokens, trace.prompt_tokens)
    block = trace.block(0, 2)
    by_whole = scale_to_load(block, one_server(), 0.8, workload=equal_requests(16, 4))
    assert by_whole.mean_rate_per_s == pytest.approx(20.0)
