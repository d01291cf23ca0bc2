"""A wrong config is a one-line ValueError at construction that names the field and the value."""

import math

import numpy as np
import pytest
from flat_profile import FLAT, SLOW

from servegym.simulator.config import DECISIONS, SCENARIOS, ClusterConfig
from servegym.simulator.policy import find_policy
from servegym.simulator.profiles import find_profile
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import STATIC
from servegym.traces import Trace

A100 = "a100_sxm/Llama-3.1-8B/tp1"
COUNTS = (
    "instances",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_blocks",
    "block_size",
    "batch_size",
    "tiers",
    "routers",
    "migration_stages",
    "last_stage_blocks",
    "min_instances",
    "max_instances",
)
COUNTS_FROM_0 = ("max_local_waiting", "client_retries")
NOT_NEGATIVE = (
    "watermark",
    "batch_wait_s",
    "metrics_interval_s",
    "reject_penalty_s",
    "host_overhead_ms",
    "snapshot_interval_s",
    "max_hold_s",
    "startup_delay_s",
)
POSITIVE = (
    "hold_timer_s",
    "rebalance_interval_s",
    "scaling_interval_s",
    "retry_backoff_s",
    "link_gb_per_s",
    "timeout_s",
)
CHOICES = ("engine", "queue_by", "on_failure")
DECIDERS = ("admission", "queue", "migration", "scaling")  # None: nobody
FLAGS = ("reserve_full_prompt", "bypass_blocked")
NAMES = ("profile", "order", "estimator", "remaining")
MAPPINGS = tuple(f"{name}_params" for name in DECISIONS.values())
OPTIONAL = (
    "kv_blocks",
    "watermark",
    "reject_penalty_s",
    "calibration",
    "last_stage_blocks",
    "max_instances",
    "max_local_waiting",
    "timeout_s",
)
KINDS = {field: f"{kind} policy" for kind, field in DECISIONS.items()} | {"profile": "profile"}
NAN, INF = math.nan, math.inf


def message_of(**options) -> str:
    """Return what the refused config says, which must be one line."""
    with pytest.raises(ValueError) as error:
        ClusterConfig(**options)
    assert type(error.value) is ValueError
    assert "\n" not in str(error.value)
    return str(error.value)


def test_case_07_every_field_is_covered_here():
    """A field added without a check of its values would slip through the tests below."""
    covered = {
        *COUNTS,
        *COUNTS_FROM_0,
        *NOT_NEGATIVE,
        *POSITIVE,
        *FLAGS,
        *CHOICES,
        *NAMES,
        *DECIDERS,
    }
    covered |= {*MAPPINGS, "calibration", "faults"}
    assert covered == set(ClusterConfig.model_fields)


FAULT = {"kind": "crash", "instance": 0, "at_s": 1.0, "duration_s": 1.0}
BAD_FAULT = {
    "kind": ("fire", None),
    "instance": (-1, 4, 0.5),
    "at_s": (-1.0, NAN, INF),
    "duration_s": (0.0, -1.0, NAN),
    "factor": (0.0, -1.0, INF),
}

BAD = (
    [(name, value) for name in COUNTS for value in (0, -1, NAN, INF, -INF, 2.5, "many", [1])]
    + [(name, 10**12) for name in COUNTS]
    + [
        (name, value)
        for name in COUNTS_FROM_0
        for value in (-1, NAN, INF, 2.5, "many", [1], 10**12)
    ]
    + [(name, value) for name in POSITIVE for value in (0, 0.0, -1.0, NAN, INF, "x", 1e10)]
    + [("timeout_s", value) for value in ([-1.0], [1.0, 1.0], [None, None])]
    + [(name, value) for name in NOT_NEGATIVE for value in (-1e-9, NAN, INF, -INF, "x", [1])]
    + [("calibration", value) for value in (0, 0.0, -1.0, NAN, INF, "x")]
    + [("watermark", value) for value in (1, 1.0, 2)]
    + [("metrics_interval_s", value) for value in (1e-12, 1e7)]
    + [("batch_wait_s", 1e7), ("host_overhead_ms", 1e10), ("calibration", 1e7)]
    + [(name, value) for name in FLAGS for value in (2, -1, NAN, "perhaps", None)]
    + [(name, value) for name in CHOICES for value in ("vllm", "", 1, None)]
    + [(name, value) for name in DECIDERS for value in ("", "nobody", 1)]
    + [("faults", value) for value in (1, "x", None)]
    + [
        (name, value)
        for name in ("order", "estimator", "remaining")
        for value in ("", "nobody", 1, None)
    ]
    + [("profile", value) for value in ("", "nobody", 1, None, [], [1], [A100, "nobody"])]
    + [(name, value) for name in MAPPINGS for value in (1, "x", None, {"tokens": "x"})]
    + [
        (name, None)
        for name in (*COUNTS, *COUNTS_FROM_0, *NOT_NEGATIVE, *POSITIVE)
        if name not in OPTIONAL
    ]
)


@pytest.mark.parametrize(("name", "value"), BAD)
def test_case_07_bad_value_is_refused_with_its_field_and_value(name, value):
    """A rate, count or coefficient of zero, NaN or inf gave a silent nonsense run or a hang (Vidur, BLIS)."""
    message = message_of(**{name: value})
    assert any(word in message for word in (f"{name} = ", f"{name}.", f"unknown {KINDS.get(name)}"))
    told = value[-1] if isinstance(value, list) and value else value
    told = told["tokens"] if isinstance(told, dict) else told
    assert str(told) in message, message


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD_FAULT.items() for value in values]
)
def test_case_07_bad_fault_is_refused_with_its_number_field_and_value(name, value):
    """A fault on an instance that is not there, or of no length, would silently not happen."""
    message = message_of(faults=[FAULT, {**FAULT, name: value}])
    assert f"faults.1.{name} = " in message and str(value) in message, message


@pytest.mark.parametrize("value", [NAN, INF, -INF, 0.0, 0.99, -5.0, 2.0**31])
def test_case_07_bad_policy_parameter_is_refused_with_its_name_and_value(value):
    """Parameters of policies come from users and tuners and must not be trusted more than fields."""
    message = message_of(estimator_params={"tokens": value})
    assert message == f"constant: tokens = {value}; must be in [1, {2**30}] tokens"


@pytest.mark.parametrize("name", COUNTS)
def test_case_07_a_flag_is_no_count(name):
    """`instances=True` is a slip, such as a shifted positional argument."""
    assert f"{name} = True" in message_of(**{name: True})


@pytest.mark.parametrize("order", ["fcfs", "priority"])
def test_case_07_parameters_of_an_order_that_has_none_are_refused(order):
    """A parameter that is ignored runs something else than what was asked for."""
    assert "aging" in message_of(order=order, order_params={"aging": 1.0})


@pytest.mark.parametrize("name", OPTIONAL)
def test_none_means_the_profiles_or_engines_own(name):
    assert getattr(ClusterConfig(**{name: None}), name) is None


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("instanses", "instances"),
        ("max_num_batched_token", "max_num_batched_tokens"),
        ("metric_interval_s", "metrics_interval_s"),
        ("kv_block", "kv_blocks"),
    ],
)
def test_case_07_unknown_option_names_the_near_match(wrong, near):
    """Misspelt options that are swallowed run the default under the wrong name (llumnix forks)."""
    expected = f"unknown option {wrong!r}; did you mean {near!r}?"
    assert message_of(**{wrong: 1}).startswith(expected)


def test_unknown_option_without_a_near_match_lists_all_options():
    message = message_of(zzzzzz=1)
    assert all(name in message for name in ClusterConfig.model_fields)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"profile": "a100_sxm/Llama-3.1-8B/tp2"}, "did you mean 'a100_sxm/Llama-3.1-8B/tp1'?"),
        ({"order": "sfj"}, "did you mean 'sjf'?"),
        ({"estimator": "orakle"}, "did you mean 'oracle'?"),
        ({"estimator_params": {"token": 5}}, "did you mean 'tokens'?"),
    ],
)
def test_case_07_unknown_name_names_the_near_match(options, expected):
    assert expected in message_of(**options)


@pytest.mark.parametrize("engine", ["vllm-v1", "sarathi"])
def test_case_07_budget_below_the_seats_is_refused(engine):
    """vLLM refuses it; a simulator that takes it starves decodes for ever."""
    expected = f"max_num_batched_tokens = 63; must be >= max_num_seqs = 64 for {engine}"
    options = {"engine": engine, "max_num_seqs": 64}
    assert message_of(**options, max_num_batched_tokens=63) == expected
    ClusterConfig(**options, max_num_batched_tokens=64)


@pytest.mark.parametrize("engine", ["vllm-v0", "static"])
def test_budget_of_engines_that_pad_or_ignore_it_may_be_below_the_seats(engine):
    config = ClusterConfig(engine=engine, max_num_seqs=64, max_num_batched_tokens=63)
    assert (config.max_num_seqs, config.max_num_batched_tokens) == (64, 63)


def test_static_engine_refuses_bypass():
    message = message_of(engine="static", bypass_blocked=True)
    assert message.startswith("bypass_blocked = True")


def test_block_larger_than_the_profiles_kv_is_refused():
    # a10 with Llama-2-7B has 851 blocks of 16 = 13,616 tokens: less than one block of 16,384
    profile = "a10/Llama-2-7B/tp1"
    assert "block_size = 16384" in message_of(profile=profile, block_size=16384)
    config = ClusterConfig(profile=profile, block_size=8192)
    assert config.kv_blocks_of(find_profile(profile)) == 1


def test_default_kv_keeps_its_tokens_when_the_block_size_changes():
    row = find_profile(A100)
    tokens = row.kv_blocks(1)
    for size in (1, 16, 24, 64):
        assert ClusterConfig(block_size=size).kv_blocks_of(row) == tokens // size


@pytest.mark.parametrize(
    ("engine", "watermark", "blocks"),
    [
        ("vllm-v1", None, 1000),  # default 0
        ("vllm-v1", 0.0105, 990),  # floor(10.5) = 10
        ("vllm-v0", None, 990),  # default .01
        ("vllm-v0", 0.0, 999),  # Vidur's engines keep one block free in any case
        ("sarathi", 0.0, 999),
        ("sarathi", 0.1, 900),
        ("static", None, 1000),
        ("static", 0.5, 1000),  # the watermark plays no part
    ],
)
def test_largest_need_by_engine_and_watermark(engine, watermark, blocks):
    config = ClusterConfig(profile=FLAT, engine=engine, watermark=watermark)
    assert config.largest_need_of(find_profile(FLAT)) == blocks


def test_case_07_mixed_fleet_takes_its_profiles_in_turn():
    """Mixed fleets are where per-instance capacity and speed get mixed up."""
    config = ClusterConfig(instances=5, profile=[FLAT, SLOW, A100], calibration=2.0)
    dispatch = find_policy("dispatch", "round-robin")
    state = Simulation(Trace([0.0], [1], [1]), config, dispatch).state
    assert state.instances["engine"].tolist() == [0, 1, 2, 0, 1]
    assert state.engines["c0_ms"].tolist()[:2] == [10.0, 20.0]
    assert (state.engines["calibration"] == 2.0).all()
    blocks = [1000, 1000, find_profile(A100).kv_blocks_default]
    assert state.instances["free_blocks"].tolist() == [*blocks, *blocks[:2]]


def test_profiles_beyond_the_instances_are_refused():
    # the third would never be used
    assert "instances = 2" in message_of(instances=2, profile=[FLAT, SLOW, A100])
    assert len(ClusterConfig(instances=3, profile=[FLAT, SLOW, A100]).fleet_profiles) == 3


def test_profile_of_a_mixed_fleet_that_has_less_than_one_block_is_refused():
    message = message_of(profile=[A100, "a10/Llama-2-7B/tp1"], block_size=16384)
    assert "a10/Llama-2-7B/tp1" in message


def test_seats_are_the_batch_size_of_the_static_engine():
    for engine, seats in (("vllm-v1", 7), ("static", 3)):
        config = ClusterConfig(engine=engine, max_num_seqs=7, batch_size=3)
        state = Simulation(Trace([0.0], [1], [1]), config, find_policy("dispatch", "random")).state
        assert len(state.slots) == 4 * seats
    assert state.engines[0]["kind"] == STATIC


def test_config_is_frozen_and_survives_json():
    config = ClusterConfig(instances=3, profile=(FLAT, SLOW), metrics_interval_s=0.1)
    with pytest.raises(ValueError):
        config.instances = 4
    assert ClusterConfig(**config.model_dump(mode="json")) == config


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_are_valid_configs(name):
    config = ClusterConfig(**SCENARIOS[name])
    assert {field: getattr(config, field) for field in SCENARIOS[name]} == SCENARIOS[name]


def test_numpy_numbers_are_taken():
    config = ClusterConfig(instances=np.int64(3), metrics_interval_s=np.float64(0.5))
    assert (config.instances, config.metrics_interval_s) == (3, 0.5)


def test_smallest_calibration_and_largest_overhead_still_end():
    # all but no time an iteration, and 1,000 s: times go on growing
    trace = Trace(np.zeros(5), np.full(5, 40), np.full(5, 3))
    for options in ({"calibration": 1e-300}, {"host_overhead_ms": 1e6}):
        simulation = Simulation(
            trace, ClusterConfig(instances=1, **options), find_policy("dispatch", "random")
        )
        simulation.run()
        records = simulation.state.requests
        assert (records["finish_ps"] >= records["first_token_ps"]).all()
        assert (records["first_token_ps"] >= records["arrival_ps"]).all()
