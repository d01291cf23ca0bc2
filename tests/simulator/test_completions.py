"""Policies that learn have seen every completion up to the instant at which they are asked."""

import numpy as np
from flat_profile import FLAT

from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import dispatch_policy, remaining_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.views import HOLD, is_accepting, predicted_finish_s
from servegym.traces import Trace


def count(request, output_tokens, params, memory):
    """Count a completion."""
    memory[0] += 1


@remaining_policy(source="test", name="test-counts", memory=1, observe=count)
def counts(request, generated, params, memory):
    """Return one token, and a hundred for every completion seen."""
    return 1.0 + 100.0 * memory[0]


@dispatch_policy(source="test", name="test-foretells", memory=8)
def foretells(cluster, request, params, memory, rng):
    """Return instance 0, after writing down when the request would finish."""
    if not is_accepting(cluster, request, 0):
        return HOLD
    memory[request.index] = predicted_finish_s(cluster, request, 0)
    return 0


def test_remaining_lengths_have_seen_what_ended_before_a_release():
    # one seat, pulled: request 1 is dispatched when request 0 ends, and is foretold 101 tokens of 10 ms
    config = ClusterConfig(
        instances=1, profile=FLAT, max_num_seqs=1, max_local_waiting=0, remaining="test-counts"
    )
    trace = Trace(np.zeros(2), np.full(2, 8), np.full(2, 3))
    simulation = Simulation(trace, config, foretells)
    simulation.run()
    np.testing.assert_allclose(simulation.state.memory[:2], [0.01, 1.01])
