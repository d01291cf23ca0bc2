"""The recorder: samples are what a paused simulation shows, and looking changes nothing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flat_profile import FLAT, one_server

from servegym.baselines.simulate import simulate
from servegym.experiments.recorder import ReplayError, record, simulation_of
from servegym.simulator.config import ClusterConfig
from servegym.simulator.result import Result
from servegym.traces import Trace, generate


def crowded(**options) -> Result:
    """300 requests of three tiers on two instances whose KV is too small: preemptions happen."""
    trace = generate("azure-conv", 300, 50.0, 0).assign_tiers([0.5, 0.3, 0.2], 0)
    config = ClusterConfig(instances=2, kv_blocks=700, tiers=3, max_num_seqs=32)
    return simulate(trace, config, "random", seed=3, **options)


@pytest.fixture(scope="module")
def result() -> Result:
    return crowded()


def test_samples_of_two_requests_by_hand():
    # One seat, 10 ms an iteration. The first runs 0-30 ms; the second arrives at 5 and runs 30-50.
    # 11 samples, each 5 ms. At 0 the iteration has not started; at 30 the first has ended and the
    # second not started. 20 prompt tokens hold 2 blocks of 16.
    result = simulate(Trace([0.0, 0.005], [20, 20], [3, 2]), one_server())
    recording = record(result, 11)
    np.testing.assert_allclose(recording.time_s, np.arange(11) * 0.005)
    assert recording.running[:, 0].tolist() == [0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0]
    assert recording.waiting[:, 0].tolist() == [1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]
    assert recording.used_blocks[:, 0].tolist() == [0, 2, 2, 2, 2, 2, 0, 2, 2, 2, 0]
    assert recording.kv_share[1, 0] == pytest.approx(2 / 1000)
    assert len(recording.evictions) == 0


def test_a_preemption_by_hand():
    # 4 blocks of 16 and two requests of 32 + 18 tokens, both prefilled from 0 to 10 ms. Their 33rd
    # token needs a third block: the second is preempted at 10, and waits until the first has ended
    # at 180. Samples 10 ms apart see what ended, not what starts: gone at 20, back at 190.
    config = ClusterConfig(instances=1, profile=FLAT, kv_blocks=4)
    recording = record(simulate(Trace([0.0, 0.0], [32, 32], [18, 18]), config), 36)
    assert recording.time_s[-1] == pytest.approx(0.350)
    assert recording.evictions.tolist() == [(1, 2, 19, 1)]
    assert recording.preemptions[:, 0].tolist() == [0, 0] + [1] * 34
    assert recording.waiting[:, 0].tolist() == [2, 0] + [1] * 17 + [0] * 17


def test_samples_are_what_a_paused_simulation_shows(result: Result):
    recording = record(result, 40)
    simulation = simulation_of(result)
    for k, time_s in enumerate(recording.time_s):
        simulation.run(until_s=time_s)
        for i in range(2):
            seen = simulation.observe(i)
            assert recording.waiting[k, i] == seen["n_waiting"]
            assert recording.running[k, i] == seen["n_running"]
            assert recording.used_blocks[k, i] == seen["used_blocks"]


@pytest.mark.parametrize("n_samples", [2, 17, 400])
def test_preemptions_add_up_however_often_one_looks(result: Result, n_samples: int):
    recording = record(result, n_samples)
    assert recording.preemptions[-1].sum() == result.summary()["preemptions"] > 0
    times = np.zeros(len(result.requests), int)
    np.add.at(times, recording.evictions["request"], recording.evictions["times"])
    assert times.tolist() == result.requests["preemptions"].tolist()
    assert (np.diff(recording.preemptions, axis=0) >= 0).all()


def test_waits_after_preemptions_are_counted_among_the_waiting(result: Result):
    recording = record(result, 400)
    again = np.zeros(400, int)
    for eviction in recording.evictions:
        again[eviction["sample"] : eviction["until"]] += 1
    assert again.max() > 0
    assert (again <= recording.waiting.sum(axis=1)).all()


def test_chosen_instances_and_the_table_of_samples(result: Result):
    both, second = record(result, 10), record(result, 10, [1])
    assert second.waiting[:, 0].tolist() == both.waiting[:, 1].tolist()
    table = both.frame()
    assert len(table) == 20
    of_second = table[table["instance"] == 1]
    assert of_second["used_blocks"].tolist() == both.used_blocks[:, 1].tolist()
    assert of_second["time_s"].tolist() == both.time_s.tolist()


def test_a_result_that_cannot_be_repeated_is_an_error(result: Result):
    records = result.records.copy()
    records["finish_ps"][7] += 1
    with pytest.raises(ReplayError, match="request 7: a second run gives finish_ps = "):
        record(replace(result, records=records), 10)


def test_a_saved_result_gives_the_same_recording(result: Result, tmp_path: Path):
    result.save(tmp_path)
    saved = Result.load(tmp_path)
    fresh, again = record(result, 50), record(saved, 50)
    assert fresh.frame().equals(again.frame())
    assert fresh.evictions.tolist() == again.evictions.tolist()
    saved.requests.loc[7, "preemptions"] += 1
    with pytest.raises(ReplayError, match="a second run of random differs from the one saved"):
        record(saved, 50)


def test_a_run_cut_by_its_horizon_is_recorded_up_to_it():
    recording = record(crowded(horizon_s=5.0), 11)
    assert recording.time_s[-1] == 5.0
    assert recording.running[-1].sum() > 0


def test_a_result_taken_on_the_way_is_recorded_up_to_there(result: Result):
    simulation = simulation_of(result)
    simulation.run(until_s=2.0)
    assert record(simulation.result(), 5).time_s[-1] == 2.0


def test_no_requests_are_recorded_as_nothing():
    recording = record(simulate(Trace([], [], []), profile=FLAT), 3)
    assert recording.time_s.tolist() == [0.0] * 3
    assert recording.waiting.sum() == recording.used_blocks.sum() == 0


def test_bad_arguments_are_named(result: Result):
    with pytest.raises(ValueError, match="n_samples = 1; must be >= 2"):
        record(result, 1)
    with pytest.raises(ValueError, match=r"instances: 2; must be in 0 \.\. 1"):
        record(result, 10, [0, 2])
