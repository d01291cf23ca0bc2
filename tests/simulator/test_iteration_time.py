"""Iteration times in whole picoseconds, and sums of them, against numpy and plain integers."""

from fractions import Fraction

import numpy as np
from flat_profile import FLAT
from hypothesis import example, given
from hypothesis import strategies as st

from servegym.simulator.config import ClusterConfig
from servegym.simulator.iteration_time import (
    EXACT_BELOW,
    iteration_ps,
    iterations_until,
    round_half_even,
    stretch_ps,
)
from servegym.simulator.policy import find_policy
from servegym.simulator.profiles import find_profile
from servegym.simulator.simulation import Simulation
from servegym.simulator.state import LATEST_PS
from servegym.traces import Trace

A100 = "a100_sxm/Llama-2-7B/tp1"
MOST_ITERATIONS = 2**31 - 1


def engine_of(profile: str, **options):
    """Return the engine record of an instance with that profile."""
    trace = Trace([0.0], [1], [1])
    config = ClusterConfig(instances=1, profile=profile, **options)
    return Simulation(trace, config, find_policy("dispatch", "round-robin")).state.engines[0]


# Rounding.


@given(st.floats(0, 2.0**63))
def test_round_half_even_is_numpys_rint(value):
    assert round_half_even(value) == np.rint(value)


@given(st.integers(0, int(EXACT_BELOW) - 1))
@example(0)
@example(int(EXACT_BELOW) - 1)
def test_ties_go_to_the_even_neighbour(whole):
    even = whole if whole % 2 == 0 else whole + 1
    assert round_half_even(whole + 0.5) == even == np.rint(whole + 0.5)


def test_round_half_even_has_no_seam_where_the_fraction_bits_end():
    # below 2**51 steps are 2**-2 or finer, then 1/2, then 1: look at each neighbourhood
    for power in (50, 51, 52, 53):
        value = np.nextafter(2.0**power, 0)
        for _ in range(5):
            assert round_half_even(value) == np.rint(value)
            value = np.nextafter(value, np.inf)


# One iteration.


def test_iteration_time_by_hand():
    # 100 prefill tokens of a fresh prompt and 3 decodes that read 1,000 tokens; knee 64.
    # c0 9.07439 + 103 * .0290669 + 39 * .0598145 + (.641693 + 3 * 0) + (0 + 5.17337e-06 * 5050)
    # PA = 100 * 101 / 2 = 5050; the sum is 15.0689 ms; kv_ps = round(.000296839 * 1e9) = 296,839.
    engine = engine_of(A100)
    rest_ms = 9.07439 + 103 * 0.0290669 + 39 * 0.0598145 + 0.641693 + 5.17337e-06 * 5050
    assert abs(rest_ms - 15.0689) < 1e-4
    duration = iteration_ps(engine, 100, 100 * 101, 3, 1000)
    assert abs(duration - (rest_ms * 1e9 + 296_839 * 1000)) <= 1


def test_calibration_scales_all_but_the_host_overhead():
    # FLAT is 10 ms whatever it holds: 2 * 10 + 3 = 23 ms
    engine = engine_of(FLAT, calibration=2.0, host_overhead_ms=3.0)
    assert iteration_ps(engine, 5, 30, 2, 99) == 23_000_000_000


def test_brackets_without_prefill_or_decodes_cost_nothing():
    row, engine = find_profile(A100), engine_of(A100)
    # 10 tokens, below the knee: decodes alone pay c_decode_step, prefill alone its attention
    base_ms = row.c0_ms + 10 * row.c_token_ms
    decodes = iteration_ps(engine, 0, 0, 10, 0)
    prefill = iteration_ps(engine, 10, 110, 0, 0)
    assert abs(decodes - (base_ms + row.c_decode_step_ms) * 1e9) <= 1
    assert abs(prefill - (base_ms + row.c_prefill_attention_ms * 55) * 1e9) <= 1


# Many iterations.

firsts = st.integers(1, 10**13)
steps = st.one_of(st.just(0), st.integers(1, 10**11))


@given(firsts, steps, st.integers(0, 400))
def test_stretch_is_the_sum_of_its_iterations(first, step, k):
    assert stretch_ps(first, step, k) == sum(first + j * step for j in range(k))


@given(firsts, steps, st.integers(1, 400), st.integers(-1, 1))
def test_iterations_until_is_the_least_number_that_lasts_the_span(first, step, k, nudge):
    # spans that end on an iteration's end, one picosecond before and one after
    span = sum(first + j * step for j in range(k)) + nudge
    total, expected = first, 1
    while total < span:
        total += first + expected * step
        expected += 1
    assert iterations_until(first, step, span) == expected


def exact_stretch_ps(first: int, step: int, k: int) -> int:
    """The same sum in Python's integers, which do not overflow."""
    return k * first + step * k * (k - 1) // 2


@given(st.integers(1, 10**15), steps, st.integers(1, LATEST_PS))
@example(1, 0, 2**31 - 1)
@example(1, 1, LATEST_PS)
@example(10**15, 10**11, LATEST_PS)
def test_iterations_until_is_exact_up_to_the_longest_times(first, step, span):
    # a stretch has fewer than 2**31 iterations, since output_tokens is an int32
    span = min(span, exact_stretch_ps(first, step, MOST_ITERATIONS))
    k = int(iterations_until(first, step, span))
    assert k >= 1
    assert exact_stretch_ps(first, step, k) >= span
    assert k == 1 or exact_stretch_ps(first, step, k - 1) < span


@given(st.integers(1, 10**6), st.integers(0, 10**4), st.integers(0, 10**5), st.integers(0, 10**5))
def test_stretches_add_up_wherever_they_are_split(first, step, k, j):
    # k iterations, then j more whose first takes first + k * step
    whole = stretch_ps(first, step, k + j)
    assert whole == stretch_ps(first, step, k) + stretch_ps(first + k * step, step, j)
    assert Fraction(whole) == (k + j) * (first + Fraction(step * (k + j - 1), 2))
