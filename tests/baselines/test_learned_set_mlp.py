"""The set network: against the formula in float64, on rows by chance and in states of the engine."""

import numpy as np
import pytest
from feature_reads import all_features
from learned_examples import SET_MLP, linear_weights, plain_logits, random_tensors, written
from policy_calls import Asked, paused

from servegym.baselines.features import N_CLUSTER, N_INSTANCE, N_REQUEST
from servegym.baselines.learned import linear_policy, set_network_policy, write_checkpoint
from servegym.baselines.learned.set_mlp import pack, scratch_size, set_logits
from servegym.baselines.simulate import simulate
from servegym.simulator.config import ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import FINISHED
from servegym.simulator.views import HOLD
from servegym.traces import generate

CLOSE = 1e-5
both_ways = pytest.mark.nojit


def native_logits(x, r, c, tensors) -> np.ndarray:
    """Return the logits that the compiled function gives; its scratch is full of what was there before."""
    weights, out = pack(tensors), np.full(len(x), np.nan, np.float32)
    hidden = -(-len(tensors["encoder.bias"]) // 16) * 16
    scratch = np.full(scratch_size(hidden, len(x)), np.nan)
    set_logits(x, r, c, weights, scratch, out)
    return out


def random_rows(rng, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of n instances, a request and a cluster."""
    return (
        rng.random((n, N_INSTANCE), dtype=np.float32),
        rng.random(N_REQUEST, dtype=np.float32),
        rng.random(N_CLUSTER, dtype=np.float32),
    )


@both_ways
@pytest.mark.parametrize("hidden", [1, 5, 16, 32, 40])
@pytest.mark.parametrize("n", [1, 3, 16, 64])
def test_logits_are_those_of_the_formula(n, hidden):
    rng = np.random.default_rng([n, hidden])
    for case in range(3):
        tensors, rows = random_tensors(hidden, case), random_rows(rng, n)
        expected = plain_logits(*rows, tensors)
        np.testing.assert_allclose(native_logits(*rows, tensors), expected, rtol=CLOSE, atol=CLOSE)


@both_ways
def test_a_network_by_hand():
    # One hidden unit. Instance rows are 0 but for running = 1 and 3; the request's prompt is 2, the cluster's row 0.
    # h = relu(2 * running - prompt + 1) = 1 and 5, mean 3; g = relu(h - 1.5 * mean + 1) = 0 and 1.5
    # logit = 10 g + .25 - (running) = -.75 and 12.25
    tensors = {name: np.zeros_like(tensor) for name, tensor in random_tensors(1).items()}
    tensors["encoder.weight"][0, [0, N_INSTANCE + 1]] = 2, -1
    tensors["encoder.bias"][0] = 1
    tensors["head.weight"][0] = 1, -1.5
    tensors["head.bias"][0] = 1
    tensors["out.weight"][0] = 10
    tensors["out.bias"][0] = 0.25
    tensors["skip.weight"][0, 0] = 1
    x, r = np.zeros((2, N_INSTANCE), np.float32), np.zeros(N_REQUEST, np.float32)
    x[:, 0], r[1] = (1, 3), 2
    assert native_logits(x, r, np.zeros(N_CLUSTER, np.float32), tensors).tolist() == [-0.75, 12.25]


@both_ways
def test_reordering_instances_reorders_logits():
    rng = np.random.default_rng(4)
    x, r, c = random_rows(rng, 23)
    order, tensors = rng.permutation(23), random_tensors()
    before, after = native_logits(x, r, c, tensors), native_logits(x[order], r, c, tensors)
    np.testing.assert_allclose(after, before[order], rtol=CLOSE, atol=CLOSE)


@both_ways
def test_equal_instances_have_equal_logits():
    x, r, c = random_rows(np.random.default_rng(5), 7)
    x[3] = x[6]
    found = native_logits(x, r, c, random_tensors())
    assert found[3] == found[6]
    assert len(set(found.tolist())) == 6


@pytest.mark.parametrize("options", [{}, {"max_local_waiting": 0}, {"max_instances": 9}], ids=str)
def test_the_choice_is_the_largest_logit_of_those_that_accept(options, tmp_path):
    trace, tensors = generate("azure-conv", 150, 30.0, 4), random_tensors()
    config = ClusterConfig(instances=6, kv_blocks=500, max_num_seqs=8, **options)
    simulation = Simulation(trace, config, find_policy("dispatch", "least-requests"))
    name = written(tmp_path, "set-mlp")
    n_held, n_chosen, chosen = 0, 0, set()
    for until_s in np.linspace(0.03, 12.0, 30):
        simulation.run(until_s)
        asked = Asked(simulation, "dispatch", name)
        for r in range(0, len(trace), 3):
            rows = all_features(simulation, r)
            expected = plain_logits(rows["instances"], rows["request"], rows["cluster"], tensors)
            accepts = rows["instances"][:, -1] > 0
            answer = asked.dispatch(r)
            if not accepts.any():
                n_held += answer == HOLD
                assert answer == HOLD
                continue
            assert accepts[answer]
            assert expected[answer] >= expected[accepts].max() - CLOSE
            n_chosen, chosen = n_chosen + 1, chosen | {answer}
    assert n_chosen > 300 and len(chosen) > 1
    assert (n_held > 0) == ("max_local_waiting" in options)


@both_ways
def test_the_first_of_equals_is_chosen(tmp_path):
    tensors = {name: np.zeros_like(tensor) for name, tensor in random_tensors().items()}
    path = write_checkpoint(tmp_path / "zero", tensors, SET_MLP)
    simulation = paused([(3, 0, 16, 50), (0, 0, 16, 50)], max_num_seqs=1, max_local_waiting=0)
    assert Asked(simulation, "dispatch", f"learned:{path}").dispatch() == 1  # 0 is full


def test_without_hidden_weights_it_is_the_linear_policy():
    weights = linear_weights(kv_used=1, waiting_output=0.5, waiting_prefill_by_need=-0.4)
    tensors = {name: np.zeros_like(tensor) for name, tensor in random_tensors().items()}
    tensors["skip.weight"][0] = weights
    trace = generate("azure-conv", 1500, 25.0, 3)
    runs = [
        simulate(trace, instances=4, system=system)
        for system in (linear_policy(weights), set_network_policy(tensors))
    ]
    # Scores of float64 and of float32 may choose otherwise only where they are as good as equal.
    same = runs[0].records["instance"] == runs[1].records["instance"]
    assert same[:300].all()
    assert len(np.unique(runs[0].records["instance"])) == 4


def test_it_runs_on_any_number_of_instances(tmp_path):
    tensors = random_tensors()
    tensors["skip.weight"][0] = linear_weights(kv_used=50, kv_waiting=50)
    path = write_checkpoint(tmp_path / "even", tensors, SET_MLP)
    for instances in (1, 4, 64):
        trace = generate("azure-conv", 600, 4.0 * instances, 3)
        result = simulate(trace, instances=instances, system=f"learned:{path}")
        assert (result.records["status"] == FINISHED).all()
        assert len(np.unique(result.records["instance"])) == instances
