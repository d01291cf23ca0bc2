"""The residual estimator: the mean of its prompt bin, by hand and from a run."""

import numpy as np
from flat_profile import FLAT

from servegym.baselines.estimation.residual import observe, residual
from servegym.baselines.length_table import PROMPT_TABLE_SIZE
from servegym.simulator.build import records
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import REQUEST, Request
from servegym.traces import Trace


def request(prompt: int) -> Request:
    """Return a request with that prompt."""
    record = records(1, REQUEST)
    record["prompt_tokens"] = prompt
    return Request(record, 0)


def test_prediction_is_the_bins_mean_drawn_towards_that_of_all():
    params, memory, rng = np.array([8.0, 1.0]), np.zeros(PROMPT_TABLE_SIZE), np.zeros(1, np.uint64)
    assert residual(request(10), params, memory, rng) == 8.0
    observe(request(10), 2, params, memory)
    observe(request(500), 20, params, memory)
    # all: (2 + 20 + 8) / 3 = 10; prompts below 32: (2 + 10) / 2; below 512: (20 + 10) / 2
    assert residual(request(10), params, memory, rng) == 6.0
    assert residual(request(500), params, memory, rng) == 15.0
    assert residual(request(100), params, memory, rng) == 10.0


def test_it_learns_what_each_kind_of_prompt_takes():
    # short prompts take 5 tokens, long ones 80; one a second, each ends before the next arrives
    n = 400
    is_long = np.arange(n) % 2 == 1
    trace = Trace(np.arange(n) * 1.0, np.where(is_long, 1000, 20), np.where(is_long, 80, 5))
    config = ClusterConfig(instances=1, profile=FLAT, estimator="residual")
    simulation = Simulation(trace, config, find_policy("dispatch", "round-robin"))
    simulation.run()
    predicted = simulation.state.requests["predicted_tokens"]
    assert predicted[0] == 42  # the workload's mean, 42.5, half to even
    assert set(predicted[-20:].tolist()) == {6, 79}  # 5 imagined ones of 42 among 200
