"""Linear learned dispatch: a choice worked out by hand, ties, instances that accept nobody."""

from typing import Any

import numpy as np
import pytest
from feature_reads import all_features
from learned_examples import LINEAR, F, linear_weights
from policy_calls import Asked, paused

from servegym.baselines.features import INSTANCE_FEATURES
from servegym.baselines.learned import linear_policy, write_checkpoint
from servegym.simulator.views import HOLD

pytestmark = [pytest.mark.boundscheck, pytest.mark.nojit]
# Instance 0 runs 160 tokens, 10 of 1,000 blocks, and one more waits; instance 1 runs 1,600 tokens, 100 blocks.
ROWS = [(0, 0, 160, 50), (0, 0, 16, 50), (1, 0, 1600, 50)]


def choice(tmp_path, simulation, **weights: float) -> int:
    """Return what a checkpoint with these weights chooses for the asker."""
    path = write_checkpoint(tmp_path / "by-hand", {"weight": linear_weights(**weights)}, LINEAR)
    return Asked(simulation, "dispatch", f"learned:{path}").dispatch()


def test_the_least_score_is_chosen_by_hand(tmp_path):
    # The asker has 500 tokens, 32 of 1,000 blocks: kv_need = .032 / .05 = .64; foretold are 50: 50/500 = .1.
    simulation = paused(ROWS, asker=(0, 500), max_num_seqs=1)
    simulation.state.requests["predicted_tokens"][-1] = 50
    # waiting = 1/16 and 0; kv_used = .01 and .1. Scores .0725 and .1
    weights: dict[str, float] = {"waiting": 1, "kv_used": 1}
    assert choice(tmp_path, simulation, **weights) == 0
    # .0725 + .64/16 = .1125 and .1
    weights["waiting_by_need"] = 1
    assert choice(tmp_path, simulation, **weights) == 1
    # .1125 + 2*.1*.01 = .1145 and .1 + 2*.1*.1 = .12
    weights["kv_used_by_output"] = 2
    assert choice(tmp_path, simulation, **weights) == 0


def test_the_first_of_equals_is_chosen(tmp_path):
    simulation = paused([(3, 0, 16, 50)])
    assert choice(tmp_path, simulation) == 0
    assert choice(tmp_path, simulation, running=-1) == 3
    assert choice(tmp_path, simulation, accepts=1) == 0


def test_an_instance_that_does_not_accept_is_never_chosen(tmp_path):
    # Seats for one, and nobody may wait: instances 0 and 1 are full. Absent ones, 3 to 5, have the least score of all.
    rows = [(0, 0, 160, 50), (1, 0, 160, 50)]
    full: dict[str, Any] = {"max_num_seqs": 1, "max_local_waiting": 0, "max_instances": 6}
    simulation = paused(rows, instances=3, **full)
    assert all_features(simulation, 2)["instances"][:, -1].tolist() == [0, 0, 1, 0, 0, 0]
    for sign in (-1, 1):
        assert choice(tmp_path, simulation, running=sign, accepts=100) == 2
    simulation = paused(rows, instances=2, **full)
    assert choice(tmp_path, simulation, running=1) == HOLD


def test_the_score_is_that_of_the_format_in_many_states(tmp_path):
    rng = np.random.default_rng(2)
    for case in range(30):
        rows = [
            (int(i), 0, int(p), 50)
            for i, p in zip(rng.integers(0, 5, 25), rng.integers(1, 900, 25), strict=True)
        ]
        simulation = paused(rows, (0, 300), 0.35, max_num_seqs=3, kv_blocks=300, instances=5)
        weights = rng.normal(size=3 * F).astype(np.float32)
        read = all_features(simulation, len(rows))
        x, r = read["instances"].astype(float), read["request"].astype(float)
        products = np.hstack([x, x * r[2], x * r[3]])
        path = write_checkpoint(tmp_path / f"case-{case}", {"weight": weights}, LINEAR)
        expected = int(np.argmin(products @ weights))
        assert Asked(simulation, "dispatch", f"learned:{path}").dispatch() == expected


def test_what_accepts_stands_last_in_a_row():
    assert INSTANCE_FEATURES[-1].name == "accepts"


def test_weights_in_memory_are_the_numbers_in_order():
    weights = np.arange(3 * F, dtype=np.float32)
    assert np.array_equal(np.asarray(linear_policy(weights).weights), weights)
