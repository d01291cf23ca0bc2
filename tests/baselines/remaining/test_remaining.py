"""Remaining-length policies by hand, and what every one of them must do."""

import numpy as np
import pytest
from flat_profile import FLAT

from servegym.baselines.length_table import ALL, N_BINS, TABLE_SIZE
from servegym.baselines.remaining.plug_in import plug_in
from servegym.baselines.remaining.residual import PREDICTION, observe, residual
from servegym.simulator.build import records
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy, policy_names
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED, REQUEST, Request
from servegym.traces import Trace
from servegym.traces.workload import generate

REMAINING = [
    name
    for name in policy_names("remaining")
    if find_policy("remaining", name).function.__module__.startswith("servegym.")
]


def request(prompt: int, predicted: int) -> Request:
    """Return a request with these tokens."""
    record = records(1, REQUEST)
    record["prompt_tokens"], record["predicted_tokens"] = prompt, predicted
    return Request(record, 0)


def test_plug_in_leaves_what_is_predicted_then_ten():
    params, memory = np.array([10.0]), np.zeros(0)
    left = [plug_in(request(50, 6), g, params, memory) for g in (0, 5, 6, 100)]
    assert left == [6.0, 1.0, 10.0, 10.0]


def test_residual_asks_narrower_classes_after_wider_ones():
    params, memory = np.array([1.0, 10.0]), np.zeros(TABLE_SIZE)
    for output in (5, 10, 20):
        observe(request(10, 8), output, params, memory)
    # after 4 tokens 1 + 6 + 16 = 23 are left in 3; the plug-in rule says 4.
    # all: (23 + 4) / 4 = 6.75; prompts below 32: (23 + 6.75) / 4 = 7.4375; predictions, too: (23 + 7.4375) / 4
    assert residual(request(10, 8), 4, params, memory) == 7.609375
    # a prompt of which none has ended: what all say
    assert residual(request(100, 8), 4, params, memory) == 6.75
    # outlived, and none was longer: ten tokens
    assert residual(request(10, 8), 30, params, memory) == 10.0


def test_residual_takes_lengths_relative_to_the_prediction():
    params, memory = np.array([1.0, 10.0]), np.zeros(TABLE_SIZE)
    for output in (5, 10, 20):
        observe(request(10, 8), output, params, memory)
    # predicted twice as much, and twice as far: 2 + 12 + 32 = 46 left in 3, the plug-in rule says 8: all doubles
    assert residual(request(10, 16), 8, params, memory) == 2 * 7.609375


def test_residual_leaves_true_predictions_as_they_are():
    params, memory = np.array([5.0, 10.0]), np.zeros(TABLE_SIZE)
    for output in range(1, 600):
        observe(request(10, output), output, params, memory)
    for predicted, generated in ((500, 0), (500, 499), (333, 100), (7, 3), (1, 0)):
        left = residual(request(10, predicted), generated, params, memory)
        assert left == pytest.approx(predicted - generated, abs=1e-9)


def test_residual_learns_what_is_left_after_a_wrong_prediction():
    # predicted 50, uniform in 1 .. 400: after 100 tokens 150.5 are left
    params, memory = np.array([5.0, 10.0]), np.zeros(TABLE_SIZE)
    for output in np.random.default_rng(0).integers(1, 401, 20_000):
        observe(request(10, 50), int(output), params, memory)
    assert residual(request(10, 50), 100, params, memory) == pytest.approx(150.5, rel=0.02)
    assert residual(request(10, 50), 0, params, memory) == pytest.approx(200.5, rel=0.02)


def test_residual_without_completions_is_the_plug_in_rule():
    params, memory = np.array([5.0, 10.0]), np.zeros(TABLE_SIZE)
    for generated in (0, 5, 6, 100):
        expected = plug_in(request(50, 6), generated, params[1:], memory)
        assert residual(request(50, 6), generated, params, memory) == pytest.approx(expected)


def run(name: str, trace: Trace, dispatch: str = "block") -> Simulation:
    """Run to the end."""
    config = ClusterConfig(instances=3, profile=FLAT, remaining=name, max_num_seqs=8)
    simulation = Simulation(trace, config, find_policy("dispatch", dispatch))
    simulation.run()
    return simulation


def test_residual_has_seen_what_ended_before_the_last_arrival():
    trace = generate("azure-conv", 300, 10.0, 0)
    simulation = run("residual", trace)
    memory = simulation.state.memory
    table = memory[simulation.state.policies["memory_begin"][3] :]
    finish_ps = simulation.state.requests["finish_ps"]
    seen = finish_ps <= simulation.state.requests["arrival_ps"][-1]
    assert 50 < seen.sum() < 300
    assert table[2 * N_BINS * ALL] == seen.sum()
    ratios = trace.output_tokens[seen] / simulation.state.requests["predicted_tokens"][0]
    assert table[2 * N_BINS * ALL + 1] == pytest.approx(PREDICTION * ratios.sum())


@pytest.mark.parametrize("name", REMAINING)
@pytest.mark.parametrize("dispatch", ["block", "astrolabe", "marginal"])
def test_every_remaining_policy_plays_with_every_what_if_policy(name, dispatch):
    trace = generate("azure-conv", 200, 10.0, 0)
    logs = [run(name, trace, dispatch).state.requests for _ in range(2)]
    assert (logs[0]["status"] == FINISHED).all()
    np.testing.assert_array_equal(logs[0], logs[1])
