"""Settings that do nothing in a run: when each is said, and when not."""

import numpy as np
import pytest

from servegym.baselines.scaling.freeness import least_mean_freeness
from servegym.experiments.idle_settings import idle_settings, shared_notes
from servegym.simulator.config import ClusterConfig
from servegym.traces import Labels, Trace

TENANTS = Labels(("a", "b"), np.zeros(4, int))


def said(tier_mix: str | None = None, n_holds: int = 0, tenants: bool = False, **options) -> str:
    """Return the notes of four requests of 480 + 320 tokens under a config."""
    trace = Trace(
        np.arange(4.0), np.full(4, 480), np.full(4, 320), tenant=TENANTS if tenants else None
    )
    return "\n".join(idle_settings(ClusterConfig(**options), trace, tier_mix, n_holds))


METRICS_LOST = ({"kind": "metrics", "instance": 0, "at_s": 1},)
PULL = {"max_local_waiting": 0}


@pytest.mark.parametrize(
    ("idle", "working", "words"),
    [
        ({"tier_mix": "uniform"}, {"tier_mix": "uniform", "tiers": 2}, "tier mix uniform has one tier"),
        ({"queue_by": "tenant"}, {"queue_by": "tenant", "tenants": True}, "names no tenants"),
        (
            {"queue": "weighted", "tiers": 2},
            {"queue": "weighted", "tiers": 2, **PULL},
            "nobody waits at the gateway",
        ),
        (
            {"queue": "weighted", "tiers": 2},
            {"queue": "weighted", "tiers": 2, "n_holds": 1},
            "nobody waits at the gateway",
        ),
        (
            {"queue": "weighted", "tiers": 2, "queue_by": "none", **PULL},
            {"queue": "weighted", "queue_by": "tenant", "tenants": True, **PULL},
            "has one queue to choose from",
        ),
        (
            {"faults": METRICS_LOST},
            {"faults": METRICS_LOST, "metrics_interval_s": 1},
            "faults of kind metrics change nothing",
        ),
    ],
)  # fmt: skip
def test_a_setting_that_does_nothing_is_said(idle, working, words):
    assert words in said(**idle) and words not in said(**working)


def test_nothing_is_said_of_the_defaults():
    assert said() == ""


def test_a_band_that_a_full_instance_does_not_fall_below_is_said():
    # blocks of 16: a request has (480 + 160) / 16 = 40, one that waits needs 30. 1,000 blocks: 25 run, F = -30 / 25;
    # 10 seats: F = (1000 - 400 - 30) / 10.
    trace = Trace(np.arange(4.0), np.full(4, 480), np.full(4, 320))
    tight = {"kv_blocks": 1000, "scaling": "freeness"}
    assert least_mean_freeness(ClusterConfig(**tight), trace) == -30 / 25
    assert least_mean_freeness(ClusterConfig(max_num_seqs=10, **tight), trace) == 57
    assert said(**tight) == ""
    assert "F of a full one is 57.00" in said(max_num_seqs=10, **tight)
    assert said(max_num_seqs=10, scaling_params={"low": 58, "high": 70}, **tight) == ""
    assert said(max_num_seqs=10, scaling_params={"signal": 1}, **tight) == ""


def test_a_note_of_some_systems_names_them():
    notes = {"a": ["x", "y"], "b": ["x"], "c": ["x", "y"]}
    assert shared_notes(notes) == ["x", "a, c: y"]
